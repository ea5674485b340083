# Rscript tests/reference/mice_models.R
# Writes mice_models.csv (five completed tables, which both sides read) and mice_models.json.
# mice::D1 and mice::D2 need the package mitml, which gives D1_classic without mice (mice always
# passes degrees of freedom on).
suppressMessages(library(mice))
here <- dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)))
csv <- file.path(here, "mice_models.csv")

set.seed(1)
n <- 40
group <- sample(c("a", "b", "c"), n, replace = TRUE, prob = c(0.4, 0.35, 0.25))
x1 <- rnorm(n)
x2 <- 0.5 * x1 + rnorm(n) + (group == "b")
y <- 1 + 0.6 * x1 - 0.4 * x2 + 0.8 * (group == "c") + rnorm(n)
sick <- as.integer(runif(n) < plogis(0.7 * x1 + 0.5 * (group == "b")))
visits <- rpois(n, exp(0.3 + 0.4 * x1))
d <- data.frame(y, x1, x2, group = factor(group), sick = factor(sick), visits)
for (column in c("y", "x1", "x2", "group", "sick")) d[sample(n, 10), column] <- NA
imp <- mice(d, m = 5, seed = 2, printFlag = FALSE)
long <- complete(imp, "long")[, c(".imp", names(d))]
for (column in c("y", "x1", "x2")) long[[column]] <- round(long[[column]], 4)
write.csv(long, csv, row.names = FALSE, quote = FALSE)

long <- read.csv(csv, stringsAsFactors = TRUE, check.names = FALSE)
tables <- split(long, long$.imp)
exact <- glm.control(epsilon = 1e-15, maxit = 100)
kinds <- list(
  ols = function(f, t) lm(f, t),
  logit = function(f, t) glm(f, binomial, t, control = exact),
  poisson = function(f, t) glm(f, poisson, t, control = exact)
)
cases <- list(
  list(kind = "ols", full = y ~ x1 + x2 + group, reduced = y ~ x1 + x2, m = 5),
  list(kind = "ols", full = y ~ x1 + x2 + group, reduced = y ~ group, m = 5),
  list(kind = "ols", full = y ~ x1 + x2 + group, reduced = y ~ x1 + group, m = 5),
  list(kind = "ols", full = y ~ x1 + x2 + group, reduced = y ~ 1, m = 3),
  list(kind = "ols", full = y ~ x1 + x2, reduced = y ~ x1, m = 2),
  list(kind = "ols", full = y ~ x1 + x2, reduced = y ~ 1, m = 2),
  list(kind = "ols", full = y ~ x1 + x2, reduced = y ~ 1, m = 3),
  list(kind = "logit", full = sick ~ x1 + x2 + group, reduced = sick ~ x2, m = 5),
  list(kind = "logit", full = sick ~ x1 + x2 + group, reduced = sick ~ x1 + x2, m = 4),
  list(kind = "logit", full = sick ~ x1 + x2, reduced = sick ~ x1, m = 5),
  list(kind = "logit", full = sick ~ x1 + x2, reduced = sick ~ x1, m = 3),
  list(kind = "poisson", full = visits ~ x1 + x2 + group, reduced = visits ~ x1, m = 5),
  list(kind = "ols", full = y ~ x1 * group, reduced = y ~ 1, m = 5)
)
number <- function(v) ifelse(is.finite(v), sprintf("%.17g", v), '"none"')
array <- function(v) paste0("[", paste(number(v), collapse = ", "), "]")
record <- function(test) {
  v <- test$result
  sprintf('{"statistic": %s, "df1": %s, "df2": %s, "p": %s, "riv": %s}', number(v[1]),
          number(v[2]), number(v[3]), number(v[4]), number(v[5]))
}
one <- function(case) {
  fits <- function(f) as.mira(lapply(tables[seq_len(case$m)], function(t) kinds[[case$kind]](f, t)))
  full <- fits(case$full)
  reduced <- fits(case$reduced)
  pooled <- pool(full)
  s <- summary(pooled, conf.int = TRUE, conf.level = 0.9)
  classic <- mitml::testModels(full$analyses, reduced$analyses, method = "D1")$test
  chi2 <- mapply(function(a, b) 2 * as.numeric(logLik(a) - logLik(b)), full$analyses, reduced$analyses)
  rows <- sapply(c("ubar", "b", "t", "df", "riv", "lambda", "fmi"), function(name)
    sprintf('"%s": %s', name, array(pooled$pooled[[name]])))
  sprintf('  {"kind": "%s", "full": "%s", "reduced": "%s", "m": %d, "dfcom": %d,\n   "term": ["%s"], "estimate": %s, "std_error": %s, "p": %s, "low": %s, "high": %s,\n   %s,\n   "D1": %s,\n   "D1_classic": %s,\n   "D2": %s,\n   "D3": %s,\n   "chi2": %s}',
          case$kind, deparse(case$full), deparse(case$reduced), case$m, pooled$pooled$dfcom[1],
          paste(s$term, collapse = '", "'), array(s$estimate), array(s$std.error),
          array(s$p.value), array(s[["5 %"]]), array(s[["95 %"]]),
          paste(rows, collapse = ",\n   "), record(D1(full, reduced)),
          sprintf('{"df2": %s, "p": %s}', number(classic[3]), number(classic[4])), record(D2(full, reduced, use = "likelihood")),
          record(D3(full, reduced)), array(chi2))
}
made_by <- sprintf("mice %s, mitml %s, R %s, tests/reference/mice_models.R",
                   packageVersion("mice"), packageVersion("mitml"), getRversion())
cat(sprintf('{"made_by": "%s",\n "cases": [\n%s\n]}\n', made_by,
            paste(sapply(cases, one), collapse = ",\n")),
    file = file.path(here, "mice_models.json"))
