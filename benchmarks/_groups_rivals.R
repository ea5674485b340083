# One run of a package for clustered tables: Rscript _groups_rivals.R FOLDER METHOD M SEED
# FOLDER/table.csv: numbers, NA where missing, rows of a group together;
# FOLDER/columns.csv: name, kind (numeric, binary, ordinal) and role of each column: group, row
# (varies within groups), group level (constant within groups), or design (known always).
# METHOD: jomo (jomo_200: iterations between draws), pan, mice_2lpan, mice_2lnorm or mice_pmm.  Writes FOLDER/draws.csv, the M
# completed tables one below the other, and FOLDER/costs.txt: version, seconds of CPU.
arguments <- commandArgs(trailingOnly = TRUE)
folder <- arguments[1]
method <- arguments[2]
m <- as.integer(arguments[3])
seed <- as.integer(arguments[4])
package <- sub("_.*", "", method)
suppressPackageStartupMessages(library(package, character.only = TRUE))
data <- read.csv(file.path(folder, "table.csv"))
columns <- read.csv(file.path(folder, "columns.csv"), stringsAsFactors = FALSE)
gaps <- colSums(is.na(data)) > 0
binary <- columns$kind == "binary"
categorical <- columns$kind != "numeric"
group <- which(columns$role == "group")
level1 <- columns$role == "row"
level2 <- columns$role == "group level"

as_factors <- function(table) {
  for (j in which(categorical)) {
    table[[j]] <- factor(table[[j]], levels = 0:max(1, table[[j]], na.rm = TRUE))
  }
  table
}

as_numbers <- function(table) {
  as.data.frame(lapply(table, function(x) if (is.factor(x)) as.numeric(as.character(x)) else x))
}

put <- function(into, from) {  # the columns of a table that a package returns
  from <- as_numbers(from)
  for (name in intersect(names(into), names(from))) into[[name]] <- from[[name]]
  into
}

# Joint models take the columns that vary within groups as responses, complete ones too,
# as their relations differ within and between groups; complete binary ones explain.
explains <- (columns$role == "design") | (level2 & !gaps) | (level1 & !gaps & binary)
responds1 <- level1 & !explains
responds2 <- level2 & !explains

run_jomo <- function(nburn = 1000) {
  nbetween <- if (method == "jomo") 1000 else as.integer(sub("jomo_", "", method))
  set.seed(seed)
  typed <- as_factors(data)
  fixed <- function(which) cbind(intercept = 1, data[, which, drop = FALSE])
  given <- list(Y = typed[, responds1, drop = FALSE], X = fixed(explains),
                clus = data[[group]], nburn = nburn, nbetween = nbetween, nimp = m,
                output = 0)
  if (any(responds2)) {
    given$Y2 <- typed[, responds2, drop = FALSE]
    given$X2 <- fixed(level2 & explains)
  }
  invisible(capture.output(found <- do.call(jomo, given)))
  lapply(seq_len(m), function(i) put(data, found[found$Imputation == i, ]))
}

# weak priors, whose scale matrices are those of standardised columns
run_pan <- function(burn = 1000, between = 100) {
  y <- scale(as.matrix(data[, responds1 | responds2, drop = FALSE]))
  r <- ncol(y)
  pred <- cbind(1, scale(as.matrix(data[, explains, drop = FALSE])))
  prior <- list(a = r, Binv = diag(r), c = r, Dinv = diag(r))
  step <- function(iter, seed, ...) {
    pan(y, subj = data[[group]], pred = pred, xcol = seq_len(ncol(pred)), zcol = 1,
        prior = prior, seed = seed, iter = iter, ...)
  }
  state <- step(burn, 1000 * seed + 1)
  draws <- list()
  for (i in seq_len(m)) {
    if (i > 1) state <- step(between, 1000 * seed + i, start = state$last)
    back <- sweep(matrix(state$y, ncol = r), 2, attr(y, "scaled:scale"), "*")
    back <- sweep(back, 2, attr(y, "scaled:center"), "+")
    draws[[i]] <- put(data, setNames(as.data.frame(back), colnames(y)))
  }
  draws
}

# 3: the column and its group means, which 2l.pan alone takes; -2: the group
predictors <- function(kinds) {
  matrix <- make.predictorMatrix(data)
  matrix[, group] <- if (method == "mice_pmm") 0 else -2
  means <- which(level1)
  for (j in which(kinds == "2l.pan")) matrix[j, setdiff(means, j)] <- 3
  matrix
}

methods <- function() {
  kinds <- rep("pmm", ncol(data))
  if (method != "mice_pmm") {
    one <- c(mice_2lpan = "2l.pan", mice_2lnorm = "2l.norm")[[method]]
    kinds[level1] <- ifelse(binary[level1], "2l.bin", one)
    kinds[level2] <- ifelse(binary[level2], "2lonly.pmm", "2lonly.norm")
  }
  kinds[!gaps] <- ""
  kinds
}

run_mice <- function() {
  kinds <- methods()
  typed <- data
  for (j in which(kinds == "2l.bin")) typed[[j]] <- factor(data[[j]], levels = 0:1)
  imputed <- suppressWarnings(mice(typed, m = m, method = kinds, seed = seed,
                                   predictorMatrix = predictors(kinds), printFlag = FALSE))
  lapply(seq_len(m), function(i) as_numbers(complete(imputed, i)))
}

begin <- proc.time()
draws <- switch(package, jomo = run_jomo(), pan = run_pan(), mice = run_mice())
seconds <- sum((proc.time() - begin)[c("user.self", "sys.self")])
write.csv(do.call(rbind, draws), file.path(folder, "draws.csv"), row.names = FALSE)
writeLines(c(paste(package, packageVersion(package)), as.character(seconds)),
           file.path(folder, "costs.txt"))
