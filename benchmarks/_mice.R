# One run of mice on a table: Rscript _mice.R METHOD FOLDER M SEED
# FOLDER/table.bin: doubles by columns, NaN where missing; FOLDER/shape.txt: rows,
# columns, rows to learn from, which come first, rows that are not to be filled;
# FOLDER/columns.txt: of each column its kind and its number of levels, whose codes begin
# at 0.  METHOD "default" leaves mice its choice: pmm, logreg, polyreg, polr.  Writes
# FOLDER/draws.bin, the rows to fill of the M completed tables, and FOLDER/notes.txt:
# version, seconds of CPU, memory at the peak in KiB, remarks.
suppressPackageStartupMessages(library(mice))
arguments <- commandArgs(trailingOnly = TRUE)
method <- arguments[1]
folder <- arguments[2]
m <- as.integer(arguments[3])
seed <- as.integer(arguments[4])
shape <- scan(file.path(folder, "shape.txt"), quiet = TRUE)
columns <- read.table(file.path(folder, "columns.txt"), stringsAsFactors = FALSE)
cells <- readBin(file.path(folder, "table.bin"), "double", shape[1] * shape[2],
                 endian = "little")
cells[is.nan(cells)] <- NA
data <- as.data.frame(matrix(cells, shape[1], shape[2]))
for (j in seq_len(shape[2])) {
  if (columns[j, 1] == "numeric") next
  data[[j]] <- factor(data[[j]], levels = seq_len(columns[j, 2]) - 1,
                      ordered = columns[j, 1] == "ordinal")
}

settings <- list(data = data, m = m, maxit = 5, ignore = seq_len(shape[1]) > shape[3],
                 printFlag = FALSE, seed = seed)
if (method != "default") settings$method <- method
if (method == "rf") settings$rfPackage <- "ranger"
begin <- proc.time()
# a column that mice would leave missing by default, because another one is nearly
# the same, is kept in the model; a run without iterations shows it
first <- modifyList(settings, list(m = 1, maxit = 0))
first$data <- data
setup <- suppressWarnings(do.call(mice, first))
unfilled <- setup$method == "" & colSums(is.na(data)) > 0
if (any(unfilled)) settings$remove.collinear <- FALSE
imputed <- suppressWarnings(do.call(mice, settings))
seconds <- sum((proc.time() - begin)[c("user.self", "sys.self")])

connection <- file(file.path(folder, "draws.bin"), "wb")
for (i in seq_len(m)) {
  for (column in complete(imputed, i)[seq_len(shape[1]) > shape[4], , drop = FALSE]) {
    codes <- if (is.factor(column)) as.integer(column) - 1 else column
    writeBin(as.double(codes), connection, endian = "little")
  }
}
close(connection)
peak <- "nan"
if (file.exists("/proc/self/status")) {
  status <- readLines("/proc/self/status")
  peak <- gsub("[^0-9]", "", grep("^VmHWM", status, value = TRUE))
}
remarks <- if (any(unfilled)) paste("nearly repeated columns:", sum(unfilled))
writeLines(c(paste("mice", packageVersion("mice")), seconds, peak, remarks),
           file.path(folder, "notes.txt"))
