# Rscript tests/reference/mice_cox.R
# Writes mice_cox.json: pooled Cox regressions of the completed tables of mice_models.csv.
suppressMessages({
  library(mice)
  library(survival)
})
here <- dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)))
d <- read.csv(file.path(here, "mice_models.csv"))
n <- nrow(d) / 5
d$time <- rep(seq_len(n) / 10, 5)
d$event <- rep(rep(c(1, 1, 0, 1, 0), length.out = n), 5)
exact <- coxph.control(eps = 1e-13, toler.chol = 1e-15, iter.max = 100)
fits <- lapply(split(d, d$.imp), function(t) coxph(Surv(time, event) ~ x1 + x2, t, control = exact))
pooled <- pool(as.mira(fits))
array <- function(v) paste0("[", paste(sprintf("%.17g", v), collapse = ", "), "]")
cat(sprintf('{"made_by": "mice %s, survival %s, R %s, tests/reference/mice_cox.R",\n "dfcom": %d,\n "estimate": %s,\n "t": %s,\n "df": %s}\n',
            packageVersion("mice"), packageVersion("survival"), getRversion(), pooled$pooled$dfcom[1],
            array(pooled$pooled$estimate), array(pooled$pooled$t), array(pooled$pooled$df)),
    file = file.path(here, "mice_cox.json"))
