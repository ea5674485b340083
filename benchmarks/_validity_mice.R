# Imputation of several tables: Rscript _validity_mice.R METHOD FOLDER M SEED [FORMULA]
# FOLDER/table.bin: doubles by columns, all tables stacked, NaN where missing;
# FOLDER/shape.txt: rows of a table, columns, tables; FOLDER/columns.txt: of each column
# its name, its kind (number, binary, nominal) and its number of levels, whose codes
# begin at 0.  METHOD: default, norm, cart or rf of mice, or smcfcs, which is told the
# FORMULA.  Writes FOLDER/draws.bin, M completed tables of each table, where they are
# doubles by columns, all NaN after an error, and FOLDER/notes.txt: seconds of CPU of
# each table and its error.
arguments <- commandArgs(trailingOnly = TRUE)
method <- arguments[1]
folder <- arguments[2]
m <- as.integer(arguments[3])
seed <- as.integer(arguments[4])
formula <- arguments[5]
shape <- scan(file.path(folder, "shape.txt"), quiet = TRUE)
columns <- read.table(file.path(folder, "columns.txt"), stringsAsFactors = FALSE)
suppressPackageStartupMessages(library(if (method == "smcfcs") "smcfcs" else "mice",
                                       character.only = TRUE))
all <- readBin(file.path(folder, "table.bin"), "double", prod(shape),
               endian = "little")
all[is.nan(all)] <- NA
all <- array(all, c(shape[1], shape[3], shape[2]))

by_mice <- function(data) {
  for (j in which(columns[, 2] != "number")) {
    data[[j]] <- factor(data[[j]], levels = seq_len(columns[j, 3]) - 1)
  }
  settings <- list(data = data, m = m, maxit = 5, printFlag = FALSE)
  if (method %in% c("cart", "rf")) settings$method <- method
  if (method == "rf") settings$rfPackage <- "ranger"
  if (method == "norm") settings$defaultMethod <- c("norm", "logreg", "polyreg", "polr")
  imputed <- suppressWarnings(do.call(mice, settings))
  lapply(seq_len(m), function(i) complete(imputed, i))
}

by_smcfcs <- function(data) {
  outcome <- all.vars(as.formula(formula))[1]
  methods <- ifelse(columns[, 2] == "binary", "logreg", "norm")
  methods[colSums(is.na(data)) == 0 | names(data) == outcome] <- ""
  predictors <- matrix(0, ncol(data), ncol(data))
  for (j in which(methods != "")) {
    predictors[j, ] <- 1
    predictors[j, c(j, which(names(data) == outcome))] <- 0
  }
  log <- capture.output(imputed <- suppressWarnings(
    smcfcs(data, smtype = "lm", smformula = formula, method = methods,
           predictorMatrix = predictors, m = m, numit = 10, rjlimit = 5000)
  ))
  imputed$impDatasets
}

impute <- if (method == "smcfcs") by_smcfcs else by_mice
draws <- file(file.path(folder, "draws.bin"), "wb")
notes <- character()
for (k in seq_len(shape[3])) {
  data <- as.data.frame(array(all[, k, ], shape[1:2]))
  names(data) <- columns[, 1]
  set.seed(seed + k)
  begin <- proc.time()
  tables <- tryCatch(impute(data), error = function(e) gsub("\n", " ", conditionMessage(e)))
  seconds <- sum((proc.time() - begin)[c("user.self", "sys.self")])
  error <- if (is.character(tables)) tables else ""
  for (i in seq_len(m)) {
    for (j in seq_len(shape[2])) {
      column <- if (error == "") tables[[i]][[j]] else rep(NaN, shape[1])
      codes <- if (is.factor(column)) as.integer(column) - 1 else column
      writeBin(as.double(codes), draws, endian = "little")
    }
  }
  notes <- c(notes, paste(seconds, error))
}
close(draws)
writeLines(notes, file.path(folder, "notes.txt"))
