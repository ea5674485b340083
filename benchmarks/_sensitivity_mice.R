# Delta adjustment by mice: Rscript _sensitivity_mice.R TABLES.csv OUT.csv M SHIFTS
# TABLES.csv has the columns table, x, group, y, z.  SHIFTS are numbers with commas
# between them, in standard deviations of the observed x.  OUT.csv has the estimates,
# intervals and seconds of CPU of each table and shift.
suppressPackageStartupMessages(library(mice))
arguments <- commandArgs(trailingOnly = TRUE)
rows <- read.csv(arguments[1], na.strings = "", stringsAsFactors = TRUE)
rows$z <- factor(rows$z)
shifts <- as.numeric(strsplit(arguments[4], ",")[[1]])
answer <- function(table, shift) {
  data <- table[, c("x", "group", "y", "z")]
  moved <- mice(data, maxit = 0)$post
  moved["x"] <- sprintf("imp[[j]][, i] <- imp[[j]][, i] + %.17g",
                        shift * sd(data$x, na.rm = TRUE))
  begin <- proc.time()
  imputed <- suppressWarnings(mice(data, m = as.integer(arguments[3]), post = moved,
                                   printFlag = FALSE, seed = table$table[1] + 1))
  seconds <- sum((proc.time() - begin)[c("user.self", "sys.self")])
  mean_of_x <- summary(pool(with(imputed, lm(x ~ 1))), conf.int = TRUE)
  linear <- summary(pool(with(imputed, lm(y ~ x + group))), conf.int = TRUE)
  logistic <- summary(pool(with(imputed, glm(z ~ x + group, family = binomial))), conf.int = TRUE)
  both <- rbind(mean_of_x, linear[2, ], logistic[2, ])
  data.frame(table = table$table[1], shift = shift, estimate = both$estimate,
             low = both[["2.5 %"]], high = both[["97.5 %"]], seconds = seconds)
}
answers <- lapply(split(rows, rows$table), function(table) {
  do.call(rbind, lapply(shifts, function(shift) answer(table, shift)))
})
write.csv(do.call(rbind, answers), arguments[2], row.names = FALSE)
