# One run of missForest, with its defaults: Rscript _miss_forest.R FOLDER SEED
# FOLDER/table.bin: doubles by columns, NaN where missing; FOLDER/shape.txt: rows,
# columns; FOLDER/levels.txt: the number of levels of each column, 0 of numbers.  Writes
# FOLDER/filled.bin, and FOLDER/notes.txt: version, seconds of CPU.
suppressPackageStartupMessages(library(missForest))
arguments <- commandArgs(trailingOnly = TRUE)
folder <- arguments[1]
set.seed(as.integer(arguments[2]))
shape <- scan(file.path(folder, "shape.txt"), quiet = TRUE)
levels <- scan(file.path(folder, "levels.txt"), quiet = TRUE)
cells <- readBin(file.path(folder, "table.bin"), "double", shape[1] * shape[2],
                 endian = "little")
cells[is.nan(cells)] <- NA
data <- as.data.frame(matrix(cells, shape[1], shape[2]))
for (j in which(levels > 0)) data[[j]] <- factor(data[[j]])

begin <- proc.time()
filled <- missForest(data)$ximp
seconds <- sum((proc.time() - begin)[c("user.self", "sys.self")])
for (j in which(levels > 0)) filled[[j]] <- as.double(as.character(filled[[j]]))
writeBin(as.vector(as.matrix(filled)), file.path(folder, "filled.bin"),
         endian = "little")
writeLines(c(paste("missForest", packageVersion("missForest")), seconds),
           file.path(folder, "notes.txt"))
