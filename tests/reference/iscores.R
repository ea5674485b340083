# Rscript tests/reference/iscores.R > tests/reference/iscores.json
# The energy-I-score of numbers that are filled by the means of their columns.
suppressMessages(library(Iscores))
set.seed(1)
x <- matrix(round(rnorm(160), 3), 40)
x[, 3] <- x[, 1] + x[, 3] / 2
for (j in 2:4) x[sample(40, 4 * j), j] <- NA
means <- function(table) {
  for (j in seq_len(ncol(table))) {
    table[is.na(table[, j]), j] <- mean(table[, j], na.rm = TRUE)
  }
  table
}
score <- energy_IScore(as.data.frame(x), means, multiple = FALSE)
columns <- attr(score, "dat")
list_of <- function(values) {
  values <- ifelse(is.na(values), "null", sprintf("%.17g", values))
  paste0("[", paste(values, collapse = ", "), "]")
}
rows <- paste(apply(x, 1, list_of), collapse = ",\n  ")
cat(sprintf('{"made_by": "Iscores %s, R %s, tests/reference/iscores.R",\n',
            packageVersion("Iscores"), getRversion()))
cat(sprintf(' "score": %.17g,\n "places": %s,\n "weights": %s,\n "scores": %s,\n',
            score, list_of(columns$column_id - 1), list_of(columns$weight),
            list_of(columns$score)))
cat(sprintf(' "table": [\n  %s\n]}\n', rows))
