// What follows a convolution, on the tile that this invocation has just stored: in a
// loop, as of products.
fn finish_conv(at: ConvItem, rows: u32, each: u32) {
  let m_end = min(at.row + rows, u.m);
  let p_end = min(at.position + each, positions());
  for (var m = at.row; m < m_end; m++) {
    for (var p = at.position; p < p_end; p++) {
      let line = p / u.o2;
      let place = line / u.o1 * u.z_o0 + line % u.o1 * u.z_o1 + p % u.o2 * u.z_o2;
      let z = at.z + m * u.z_m + place;
      st2(z, finish(z, ld2(z)));
    }
  }
}
