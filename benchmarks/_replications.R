# Examples of textbooks by R: Rscript _replications.R FOLDER PART M
# PART "tables" writes the tables, one CSV file each.  Other parts write PART_answers.csv
# with the columns way, term, estimate, se and df; what mice draws M times is pooled by
# its function pool, or by pool.scalar where pool needs packages that are not asked for.
# "boys" writes the coefficients and covariances of each draw instead, for tests.
suppressPackageStartupMessages(library(mice))
arguments <- commandArgs(trailingOnly = TRUE)
folder <- arguments[1]
part <- arguments[2]
m <- as.integer(arguments[3])

put <- function(table, name) {
  write.csv(table, file.path(folder, paste0(name, ".csv")), row.names = FALSE, na = "")
}

impute <- function(data, ...) {
  suppressWarnings(mice(data, m = m, seed = 1, printFlag = FALSE, ...))
}

pooled <- function(way, fit, terms, names = terms) {
  found <- summary(pool(fit))
  found <- found[match(terms, found$term), ]
  data.frame(way = way, term = names, estimate = found$estimate, se = found$std.error,
             df = found$df)
}

fitted_once <- function(way, fit, terms, names = terms) {
  found <- coef(summary(fit))[terms, , drop = FALSE]
  data.frame(way = way, term = names, estimate = found[, 1], se = found[, 2], df = NA)
}

# The bivariate normal table of Little and Rubin: Hald's cement, thirteen rows.
cement <- MASS::cement[, c("x1", "x2", "x3", "x4", "y")]
cement[10:13, c("x1", "x2")] <- NA
cement[7:13, "x4"] <- NA

# Nine of 27 children have no value at ten: those with the smallest ones at eight.
growth <- potthoffroy
growth$d10[c(3, 6, 9, 10, 13, 16, 23, 24, 27)] <- NA
long <- function(wide) {
  table <- reshape(wide, direction = "long", varying = c("d8", "d10", "d12", "d14"),
                   v.names = "d", timevar = "age", times = c(8, 10, 12, 14), idvar = "id")
  table$age <- table$age - 11
  table
}

disaster <- fdd[, c("trt", "age", "yp1", "yp2", "yp3", "yc1", "yc2", "yc3")]
puberty <- boys[boys$age >= 8, names(boys) != "bmi"]

write_tables <- function() {
  put(employee, "employee")
  put(nhanes2, "nhanes2")
  put(nhanes, "nhanes")
  put(airquality, "airquality")
  put(cement, "cement")
  put(growth, "growth")
  put(potthoffroy, "growth_complete")
  put(disaster, "disaster")
  put(puberty, "puberty")
  put(na.omit(boys[, c("age", "hgt", "wgt", "hc", "reg")]), "boys_complete")
  versions <- c(R = as.character(getRversion()), mice = as.character(packageVersion("mice")),
                lme4 = as.character(packageVersion("lme4")))
  writeLines(paste(names(versions), versions), file.path(folder, "versions.txt"))
}

run_employee <- function() {
  ways <- lapply(c("norm", "pmm"), function(method) {
    imputed <- impute(employee, method = method, maxit = 20)
    post <- imputed$post
    post["jobperf"] <- sprintf("imp[[j]][, i] <- imp[[j]][, i] + %.17g",
                               -0.5 * sd(employee$jobperf, na.rm = TRUE))
    lowered <- impute(employee, method = method, maxit = 20, post = post)
    way <- paste("mice,", method)
    rbind(
      pooled(way, with(imputed, lm(jobperf ~ 1)), "(Intercept)", "mean of jobperf"),
      pooled(way, with(lowered, lm(jobperf ~ 1)), "(Intercept)", "mean of jobperf, lowered"),
      pooled(way, with(imputed, lm(jobperf ~ IQ + wbeing)), c("IQ", "wbeing"))
    )
  })
  # Maximum likelihood of jobperf given IQ, as IQ is complete (Anderson 1957).
  line <- lm(jobperf ~ IQ, employee)
  ways[[3]] <- data.frame(way = "maximum likelihood given IQ", term = "mean of jobperf",
                          estimate = mean(predict(line, employee)), se = NA, df = NA)
  do.call(rbind, ways)
}

run_nhanes <- function() {
  terms <- c("age40-59", "age60-99", "bmi")
  imputed <- impute(nhanes2, maxit = 20)
  numbers <- impute(nhanes, method = "norm", maxit = 20)
  rbind(
    pooled("mice", with(imputed, lm(chl ~ age + bmi)), terms),
    pooled("mice, norm", with(numbers, lm(chl ~ age + bmi)), c("age", "bmi"),
           c("age 1, 2, 3", "bmi (age 1, 2, 3)"))
  )
}

run_airquality <- function() {
  terms <- c("Wind", "Temp", "Solar.R")
  imputed <- impute(airquality)
  rbind(
    fitted_once("complete rows", lm(Ozone ~ Wind + Temp + Solar.R, airquality), terms),
    pooled("mice", with(imputed, lm(Ozone ~ Wind + Temp + Solar.R)), terms)
  )
}

run_boys <- function() {
  imputed <- impute(puberty)
  formulas <- list(height = tv ~ age + gen + reg + phb + hgt, hair = tv ~ age + gen + reg + phb)
  for (name in names(formulas)) {
    tables <- lapply(seq_len(m), function(draw) {
      fit <- lm(formulas[[name]], complete(imputed, draw))
      table <- data.frame(draw = draw, term = names(coef(fit)), estimate = coef(fit),
                          dof = df.residual(fit))
      cbind(table, as.data.frame(vcov(fit)))
    })
    put(do.call(rbind, tables), paste0(name, "_answers"))
  }
  data.frame()
}

# Maximum likelihood of a normal distribution, by EM.
normal_em <- function(X, rounds = 5000) {
  X <- as.matrix(X)
  mean <- colMeans(X, na.rm = TRUE)
  covariance <- diag(apply(X, 2, var, na.rm = TRUE))
  for (k in seq_len(rounds)) {
    full <- X
    extra <- matrix(0, ncol(X), ncol(X))
    for (i in seq_len(nrow(X))) {
      gone <- is.na(X[i, ])
      if (!any(gone)) next
      slopes <- covariance[gone, !gone, drop = FALSE] %*% solve(covariance[!gone, !gone])
      full[i, gone] <- mean[gone] + slopes %*% (X[i, !gone] - mean[!gone])
      extra[gone, gone] <- extra[gone, gone] + covariance[gone, gone] -
        slopes %*% covariance[!gone, gone, drop = FALSE]
    }
    mean <- colMeans(full)
    covariance <- (crossprod(sweep(full, 2, mean)) + extra) / nrow(X)
  }
  list(mean = mean, covariance = covariance)
}

run_cement <- function() {
  found <- normal_em(cement)
  terms <- c(paste("mean of", names(cement)), paste("variance of", names(cement)))
  data.frame(way = "EM in R", term = terms, se = NA, df = NA,
             estimate = c(found$mean, diag(found$covariance)))
}

run_growth <- function() {
  suppressPackageStartupMessages(library(lme4))
  terms <- c("sexM", "age", "sexM:age")
  model <- function(table) suppressMessages(lmer(d ~ sex * age + (1 | id), table))
  combined <- function(way, tables) {
    fits <- lapply(tables, model)
    rows <- lapply(terms, function(term) {
      values <- sapply(fits, function(fit) coef(summary(fit))[term, 1:2])
      found <- pool.scalar(values[1, ], values[2, ]^2, n = Inf)
      data.frame(way = way, term = term, estimate = found$qbar, se = sqrt(found$t),
                 df = found$df)
    })
    do.call(rbind, rows)
  }
  wide <- impute(growth[, -1], method = c("", "", "norm", "", ""), maxit = 1)
  wide <- lapply(complete(wide, "all"), function(t) long(cbind(id = growth$id, t)))
  rows <- long(growth)
  rows <- data.frame(id = rows$id, sex = as.numeric(rows$sex == "M"), age = rows$age,
                     d = rows$d)
  rows$both <- rows$sex * rows$age
  predictors <- make.predictorMatrix(rows)
  predictors["d", ] <- c(-2, 1, 2, 0, 1)
  panel <- impute(rows, method = c("", "", "", "2l.pan", ""), maxit = 1,
                  predictorMatrix = predictors)
  panel <- lapply(complete(panel, "all"), function(t) {
    transform(t, sex = factor(sex, 0:1, c("F", "M")))
  })
  rbind(
    fitted_once("no cell missing", model(long(potthoffroy)), terms),
    fitted_once("lmer on the observed rows", model(long(growth)), terms),
    combined("mice, wide, norm", wide),
    combined("mice, 2l.pan", panel)
  )
}

run_disaster <- function() {
  imputed <- impute(disaster, maxit = 20)
  rows <- lapply(1:3, function(time) {
    name <- paste0("yp", time)
    formula <- as.formula(paste(name, "~ trt"))
    fit <- as.mira(lapply(complete(imputed, "all"), function(t) lm(formula, t)))
    rbind(fitted_once("complete rows", lm(formula, disaster), "trtC", paste("CBT - EMDR, T", time)),
          pooled("mice", fit, "trtC", paste("CBT - EMDR, T", time)))
  })
  found <- do.call(rbind, rows)
  found[order(found$way), ]
}

if (part == "tables") {
  write_tables()
} else {
  put(get(paste0("run_", part))(), paste0(part, "_answers"))
}
