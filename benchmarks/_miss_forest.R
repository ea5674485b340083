# One run of missForest, with its defaults: Rscript _miss_forest.R METHOD FOLDER M SEED
# Files are those of `_mice.R`; METHOD and M say nothing: it fills all rows, once.
suppressPackageStartupMessages(library(missForest))
arguments <- commandArgs(trailingOnly = TRUE)
folder <- arguments[2]
set.seed(as.integer(arguments[4]))
shape <- scan(file.path(folder, "shape.txt"), quiet = TRUE)
columns <- read.table(file.path(folder, "columns.txt"), stringsAsFactors = FALSE)
cells <- readBin(file.path(folder, "table.bin"), "double", shape[1] * shape[2],
                 endian = "little")
cells[is.nan(cells)] <- NA
data <- as.data.frame(matrix(cells, shape[1], shape[2]))
categories <- which(columns[, 1] != "numeric")
for (j in categories) data[[j]] <- factor(data[[j]])

begin <- proc.time()
filled <- missForest(data)$ximp
seconds <- sum((proc.time() - begin)[c("user.self", "sys.self")])
for (j in categories) filled[[j]] <- as.double(as.character(filled[[j]]))
writeBin(as.vector(as.matrix(filled)), file.path(folder, "draws.bin"),
         endian = "little")
writeLines(c(paste("missForest", packageVersion("missForest")), seconds, "nan"),
           file.path(folder, "notes.txt"))
