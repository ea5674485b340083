# Rscript tests/reference/recipes.R
# Reads mice_models.csv (five completed tables) and writes recipes.json: R2 pooled by mice,
# areas and concordances with variances by survival, average slopes by marginaleffects,
# fixed effects, variances and their share by testEstimates of mitml.
suppressMessages({library(mice); library(survival); library(marginaleffects); library(mitml); library(lme4)})
here <- dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)))
long <- read.csv(file.path(here, "mice_models.csv"), stringsAsFactors = TRUE)
tables <- split(long, long$.imp)
array <- function(v) paste0("[", paste(sprintf("%.17g", v), collapse = ", "), "]")

squares <- pool.r.squared(as.mira(lapply(tables, function(t) lm(y ~ x1 + x2, t))))
areas <- lapply(tables, function(t) concordance(sick ~ x1, t))
# visits as times, of which those above 3 are censored
cox <- lapply(tables, function(t) concordance(Surv(visits + 1, visits < 4) ~ x1, t, reverse = TRUE))
names(long)[names(long) == "group"] <- "arm"  # marginaleffects reserves "group"
slopes <- suppressWarnings(avg_slopes(as.mira(lapply(split(long, long$.imp), function(t) {
  glm(sick ~ x1 + x2, binomial, t)
}))))
mixed <- testEstimates(lapply(tables, function(t) {
  t$class <- (seq_len(nrow(t)) - 1) %/% 4
  t$score <- t$y + t$class %% 5
  lmer(score ~ x1 + (1 | class), t)
}), extra.pars = TRUE)
both <- function(fits, name) array(sapply(fits, `[[`, name))
cat(sprintf('{"made_by": "mice %s, survival %s, marginaleffects %s, mitml %s, lme4 %s, R %s, tests/reference/recipes.R",\n "r2": %s,\n "auc": %s,\n "auc_variance": %s,\n "concordance": %s,\n "concordance_variance": %s,\n "slopes": %s,\n "slopes_error": %s,\n "slopes_dof": %s,\n "components": %s,\n "fixed": %s,\n "fixed_error": %s,\n "fixed_dof": %s}\n',
            packageVersion("mice"), packageVersion("survival"), packageVersion("marginaleffects"), packageVersion("mitml"),
            packageVersion("lme4"), getRversion(), array(squares),
            both(areas, "concordance"), both(areas, "var"), both(cox, "concordance"), both(cox, "var"),
            array(slopes$estimate), array(slopes$std.error), array(slopes$df), array(mixed$extra.pars[, 1]),
            array(mixed$estimates[, 1]), array(mixed$estimates[, 2]), array(mixed$estimates[, "df"])),
    file = file.path(here, "recipes.json"))
