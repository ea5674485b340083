# Rscript tests/reference/mice_pool_scalar.R > tests/reference/mice_pool_scalar.json
suppressMessages(library(mice))
num <- function(v) paste0("[", paste(format(v, digits = 17), collapse = ", "), "]")
cases <- list(
  list(Q = c(1, 1.2, 1.1), U = c(0.04, 0.05, 0.03), n = Inf, k = 1, rule = "rubin1987"),
  list(Q = c(0.3, -0.4, 0.9, 0.1, 0.2), U = c(0.5, 0.7, 0.4, 0.6, 0.55), n = Inf, k = 1, rule = "rubin1987"),
  list(Q = c(1, 1.2, 1.1), U = c(0.04, 0.05, 0.03), n = 25, k = 3, rule = "barnard.rubin"),
  list(Q = c(3.1, 5.2, 4.4, 2.8), U = c(0.1, 0.3, 0.2, 0.15), n = 100, k = 2, rule = "barnard.rubin")
)
rows <- sapply(cases, function(one) {
  p <- pool.scalar(one$Q, one$U, n = one$n, k = one$k)
  values <- sapply(c("qbar", "ubar", "b", "t", "df", "r", "fmi"), function(name)
    sprintf('"%s": %.17g', name, p[[name]]))
  sprintf('  {"rule": "%s", "n": %s, "k": %d, "Q": %s, "U": %s, %s}', one$rule,
          ifelse(is.finite(one$n), one$n, "null"), one$k, num(one$Q), num(one$U),
          paste(values, collapse = ", "))
})
cat(sprintf('{"made_by": "mice %s, R %s, tests/reference/mice_pool_scalar.R",\n "cases": [\n%s\n]}\n',
            packageVersion("mice"), getRversion(), paste(rows, collapse = ",\n")))
