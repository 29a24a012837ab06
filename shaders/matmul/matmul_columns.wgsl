// Four columns of y (access 1) and of the output (access 2), element by element.

fn load_y(at: vec4<u32>) -> V {
  return V(ld1(at.x), ld1(at.y), ld1(at.z), ld1(at.w));
}

fn store_z(at: vec4<u32>, v: V) {
  st2(at.x, v.x);
  st2(at.y, v.y);
  st2(at.z, v.z);
  st2(at.w, v.w);
}
