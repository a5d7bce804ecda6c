// A matrix (rows, columns), contiguous, normalised in groups of `columns / groups` neighbouring columns of one row.
struct Shape {
  int64_t rows;
  int64_t columns;
  int64_t groups;
};
