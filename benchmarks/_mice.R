# One run of mice: Rscript _mice.R FOLDER METHOD M MAXIT SEED
# FOLDER/table.bin: doubles by columns, NaN where missing; FOLDER/shape.txt: rows,
# columns, rows to learn from, which come first.  Writes FOLDER/draws.bin, the M
# completed tables one after the other, and FOLDER/notes.txt.
suppressPackageStartupMessages(library(mice))
arguments <- commandArgs(trailingOnly = TRUE)
folder <- arguments[1]
method <- arguments[2]
numbers <- as.integer(arguments[3:5])
shape <- scan(file.path(folder, "shape.txt"), quiet = TRUE)
cells <- readBin(file.path(folder, "table.bin"), "double", shape[1] * shape[2],
                 endian = "little")
cells[is.nan(cells)] <- NA
data <- as.data.frame(matrix(cells, shape[1], shape[2]))
ignore <- seq_len(shape[1]) > shape[3]

# a column that mice would leave missing by default, because another one is nearly
# the same, is kept in the model; a run without iterations shows it
setup <- suppressWarnings(mice(data, m = 1, maxit = 0, method = method,
                               ignore = ignore, printFlag = FALSE, seed = numbers[3]))
unfilled <- setup$method == "" & colSums(is.na(data)) > 0
settings <- list(data = data, m = numbers[1], maxit = numbers[2], method = method,
                 ignore = ignore, printFlag = FALSE, seed = numbers[3])
if (any(unfilled)) settings$remove.collinear <- FALSE
imputed <- suppressWarnings(do.call(mice, settings))

draws <- lapply(seq_len(numbers[1]), function(i) as.matrix(complete(imputed, i)))
connection <- file(file.path(folder, "draws.bin"), "wb")
for (draw in draws) writeBin(as.vector(draw), connection, endian = "little")
close(connection)
peak <- NA
if (file.exists("/proc/self/status")) {
  status <- readLines("/proc/self/status")
  peak <- as.numeric(gsub("[^0-9]", "", grep("^VmHWM", status, value = TRUE)))
}
writeLines(c(as.character(packageVersion("mice")), sum(unfilled), peak),
           file.path(folder, "notes.txt"))
