// Where the elements of a convolution lie, for neighbours on a line. Accesses 0 x,
// 1 weights, 2 out; axes n g m o0 o1 o2. position: the first of the line.
struct LineItem { x: u32, w: u32, z: u32, row: u32, position: u32 }

fn line_item(item: u32, rows: u32, each: u32) -> LineItem {
  let across = (u.o2 + each - 1u) / each;
  let down = (u.m + rows - 1u) / rows;
  var rest = item / across;
  let i1 = rest % u.o1; rest = rest / u.o1;
  let i0 = rest % u.o0; rest = rest / u.o0;
  let row = rest % down * rows; rest = rest / down;
  let g = rest % u.g;
  let n = rest / u.g;
  return LineItem(
    n * u.x_n + g * u.x_g + i0 * u.x_o0 + i1 * u.x_o1,
    g * u.w_g,
    n * u.z_n + g * u.z_g + i0 * u.z_o0 + i1 * u.z_o1,
    row,
    item % across * each,
  );
}

fn load_four(z: u32, p: u32) -> V {
  let q = min(vec4<u32>(p) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(u.o2 - 1u));
  return V(ld2(z + q.x), ld2(z + q.y), ld2(z + q.z), ld2(z + q.w));
}

fn store_four(z: u32, p: u32, v: V) {
  if (p < u.o2) { st2(z + p, v.x); }
  if (p + 1u < u.o2) { st2(z + p + 1u, v.y); }
  if (p + 2u < u.o2) { st2(z + p + 2u, v.z); }
  if (p + 3u < u.o2) { st2(z + p + 3u, v.w); }
}
