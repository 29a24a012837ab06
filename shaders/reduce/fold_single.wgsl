// Elements that are read one by one need no folding.
fn folded(v: E) -> T {
  return v;
}
