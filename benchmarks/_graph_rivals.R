# One run of a package of R on a mixed table: Rscript _graph_rivals.R FOLDER METHOD SEED
# FOLDER/table.bin: doubles by columns, NaN where missing; FOLDER/shape.txt: rows,
# columns; FOLDER/columns.txt: of each column its kind and its number of levels, whose
# codes begin at 0.  METHOD mice writes FOLDER/filled.bin, one completed table; the others
# write FOLDER/path.bin, matrices of strengths, and FOLDER/chosen.bin, one matrix of edges
# for each rule in FOLDER/rules.txt.  FOLDER/notes.txt: version, seconds of CPU.
arguments <- commandArgs(trailingOnly = TRUE)
folder <- arguments[1]
method <- arguments[2]
set.seed(as.integer(arguments[3]))
suppressPackageStartupMessages(library(method, character.only = TRUE))
shape <- scan(file.path(folder, "shape.txt"), quiet = TRUE)
columns <- read.table(file.path(folder, "columns.txt"), stringsAsFactors = FALSE)
cells <- readBin(file.path(folder, "table.bin"), "double", shape[1] * shape[2],
                 endian = "little")
cells[is.nan(cells)] <- NA
x <- matrix(cells, shape[1], shape[2])

put <- function(name, matrices) {
  connection <- file(file.path(folder, name), "wb")
  for (one in matrices) {
    writeBin(as.vector(as.matrix(one)) + 0, connection, endian = "little")
  }
  close(connection)
}

# penalties as ours, down to a hundredth of the largest
penalties <- function() {
  pairs <- cor(x, use = "pairwise.complete.obs")
  largest <- max(abs(pairs[upper.tri(pairs)]), na.rm = TRUE)
  exp(seq(log(largest), log(largest / 100), length.out = 20))
}
rules <- c("ebic 0", "ebic 0.5")
gammas <- c(0, 0.5)

begin <- proc.time()
if (method == "mice") {
  data <- as.data.frame(x)
  ways <- rep("pmm", shape[2])
  for (j in seq_len(shape[2])) {
    if (columns[j, 1] != "nominal") next
    data[[j]] <- factor(data[[j]])
    ways[j] <- if (nlevels(data[[j]]) > 2) "polyreg" else "logreg"
  }
  ways[colSums(is.na(data)) == 0] <- ""
  done <- suppressWarnings(mice(data, m = 1, maxit = 5, method = ways,
                                printFlag = FALSE, remove.collinear = FALSE))
  filled <- complete(done, 1)
  for (j in seq_len(shape[2])) {
    if (is.factor(filled[[j]])) {
      filled[[j]] <- as.double(as.character(filled[[j]]))
    }
  }
  put("filled.bin", list(filled))
} else if (method == "huge") {
  made <- huge(huge.npn(x, verbose = FALSE), nlambda = 20, method = "glasso",
               verbose = FALSE)
  rules <- c("ebic", "ric")
  chosen <- lapply(rules, function(rule) {
    huge.select(made, criterion = rule, verbose = FALSE)$refit
  })
  put("path.bin", lapply(made$icov, abs))
  put("chosen.bin", chosen)
  writeLines(rules, file.path(folder, "rules.txt"))
} else if (method == "EMgaussian") {
  path <- lapply(penalties(), function(rho) {
    em.prec(x, glassoversion = "glasso", rho = rho, penalize.diagonal = FALSE)$K
  })
  chosen <- lapply(gammas, function(gamma) {
    EMggm(x, rho = penalties(), rhoselect = "ebic", gam = gamma,
          glassoversion = "glasso", penalize.diagonal = FALSE)$graph
  })
  put("path.bin", lapply(path, function(one) abs(cov2cor(one))))
  put("chosen.bin", chosen)
  writeLines(rules, file.path(folder, "rules.txt"))
} else if (method == "cglasso") {
  low <- apply(x, 2, min, na.rm = TRUE)
  ties <- colSums(sweep(x, 2, low, "=="), na.rm = TRUE)
  low[ties == 1 | columns[, 1] != "numeric"] <- -Inf
  made <- cglasso(. ~ ., data = datacggm(x, lo = low), nrho = 20,
                  rho.min.ratio = 0.01)
  path <- lapply(seq_along(made$rho), function(k) made$Tht[, , 1, k])
  criteria <- c(list(AIC(made)), lapply(gammas, function(one) BIC(made, g = one)))
  chosen <- lapply(criteria, function(one) path[[which.min(one$value_gof)]])
  put("path.bin", lapply(path, function(one) abs(cov2cor(one))))
  put("chosen.bin", chosen)
  writeLines(c("aic", rules), file.path(folder, "rules.txt"))
} else {
  made <- bdgraph(x, method = "gcgm", not.cont = as.integer(columns[, 1] != "numeric"),
                  iter = 5000, cores = 1, verbose = FALSE)
  links <- plinks(made)
  links <- links + t(links)
  put("path.bin", list(links))
  put("chosen.bin", list(links > 0.5))
  writeLines("probability", file.path(folder, "rules.txt"))
}
seconds <- sum((proc.time() - begin)[c("user.self", "sys.self")])
notes <- c(paste(method, packageVersion(method)), as.character(seconds))
writeLines(notes, file.path(folder, "notes.txt"))
