# Impute, analyse and pool many tables by mice: Rscript _pooling_mice.R TABLES.csv OUT.csv M
# TABLES.csv has the columns table, x, group, y, z.  mice chooses its methods (pmm,
# polyreg); OUT.csv has the intervals of each coefficient, and seconds of CPU of mice.
suppressPackageStartupMessages(library(mice))
arguments <- commandArgs(trailingOnly = TRUE)
rows <- read.csv(arguments[1], na.strings = "", stringsAsFactors = TRUE)
rows$z <- factor(rows$z)
answers <- lapply(split(rows, rows$table), function(table) {
  number <- table$table[1]
  begin <- proc.time()
  imputed <- suppressWarnings(mice(table[, c("x", "group", "y", "z")], m = as.integer(arguments[3]),
                                   printFlag = FALSE, seed = number + 1))
  seconds <- sum((proc.time() - begin)[c("user.self", "sys.self")])
  linear <- summary(pool(with(imputed, lm(y ~ x + group))), conf.int = TRUE)
  logistic <- summary(pool(with(imputed, glm(z ~ x + group, family = binomial))), conf.int = TRUE)
  both <- rbind(linear, logistic)
  data.frame(table = number, low = both[["2.5 %"]], high = both[["97.5 %"]], seconds = seconds)
})
write.csv(do.call(rbind, answers), arguments[2], row.names = FALSE)
