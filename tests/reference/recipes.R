# Rscript tests/reference/recipes.R
# Reads mice_models.csv (five completed tables) and writes recipes.json: R2 pooled by mice,
# areas and concordances with variances by survival.
suppressMessages({library(mice); library(survival)})
here <- dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)))
long <- read.csv(file.path(here, "mice_models.csv"), stringsAsFactors = TRUE)
tables <- split(long, long$.imp)
array <- function(v) paste0("[", paste(sprintf("%.17g", v), collapse = ", "), "]")

squares <- pool.r.squared(as.mira(lapply(tables, function(t) lm(y ~ x1 + x2, t))))
areas <- lapply(tables, function(t) concordance(sick ~ x1, t))
# visits as times, of which those above 3 are censored
cox <- lapply(tables, function(t) concordance(Surv(visits + 1, visits < 4) ~ x1, t, reverse = TRUE))
both <- function(fits, name) array(sapply(fits, `[[`, name))
cat(sprintf('{"made_by": "mice %s, survival %s, R %s, tests/reference/recipes.R",\n "r2": %s,\n "auc": %s,\n "auc_variance": %s,\n "concordance": %s,\n "concordance_variance": %s}\n',
            packageVersion("mice"), packageVersion("survival"), getRversion(), array(squares),
            both(areas, "concordance"), both(areas, "var"), both(cox, "concordance"), both(cox, "var")),
    file = file.path(here, "recipes.json"))
