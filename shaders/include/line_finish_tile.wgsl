// What follows a convolution, on the neighbours that this invocation has just stored.
fn finish_line(at: LineItem, rows: u32, each: u32) {
  let m_end = min(at.row + rows, u.m);
  let p_end = min(at.position + each, u.o2);
  for (var m = at.row; m < m_end; m++) {
    for (var p = at.position; p < p_end; p++) {
      let z = at.z + m * u.z_m + p;
      st2(z, finish(z, ld2(z)));
    }
  }
}
