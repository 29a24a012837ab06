// Where the elements of a convolution lie. Accesses 0 x, 1 weights, 2 out; axes n g m
// o0 o1 o2 and c k0 k1 k2. Positions count through the spatial axes of this piece.
// x, w, z: where the item's image, weights and channels begin. row: its first channel.
struct ConvItem { x: u32, w: u32, z: u32, row: u32, position: u32, beyond: bool }

fn positions() -> u32 { return u.o0 * u.o1 * u.o2; }

fn conv_item(item: u32, rows: u32, each: u32) -> ConvItem {
  let across = (positions() + each - 1u) / each;
  let down = (u.m + rows - 1u) / rows;
  let line = item / across;
  let image = line / down;
  let g = image % u.g;
  let n = image / u.g;
  return ConvItem(
    n * u.x_n + g * u.x_g,
    g * u.w_g,
    n * u.z_n + g * u.z_g,
    line % down * rows,
    item % across * each,
    n >= u.n,
  );
}

fn x_places(p: vec4<u32>) -> vec4<u32> {
  let line = p / u.o2;
  return line / u.o1 * u.x_o0 + line % u.o1 * u.x_o1 + p % u.o2 * u.x_o2;
}

fn z_places(p: vec4<u32>) -> vec4<u32> {
  let line = p / u.o2;
  return line / u.o1 * u.z_o0 + line % u.o1 * u.z_o1 + p % u.o2 * u.z_o2;
}

fn load_x(at: vec4<u32>) -> V {
  return V(ld0(at.x), ld0(at.y), ld0(at.z), ld0(at.w));
}

fn load_z(at: vec4<u32>) -> V {
  return V(ld2(at.x), ld2(at.y), ld2(at.z), ld2(at.w));
}

fn store_z(at: vec4<u32>, v: V) {
  st2(at.x, v.x);
  st2(at.y, v.y);
  st2(at.z, v.z);
  st2(at.w, v.w);
}
