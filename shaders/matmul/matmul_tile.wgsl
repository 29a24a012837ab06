// Which tile of the output an item is. Accesses 0 x, 1 y, 2 out; axes b0 b1 b2 m n k.
// x, y, out: element where this item's matrices begin. row, column: the tile's corner.
struct Tile { x: u32, y: u32, z: u32, row: u32, column: u32 }

fn tile_of(item: u32, rows: u32, columns: u32) -> Tile {
  let across = (u.n + columns - 1u) / columns;
  let down = (u.m + rows - 1u) / rows;
  let line = item / across;
  let matrix = line / down;
  let i2 = matrix % u.b2;
  let i1 = matrix / u.b2 % u.b1;
  let i0 = matrix / u.b2 / u.b1;
  return Tile(
    i0 * u.x_b0 + i1 * u.x_b1 + i2 * u.x_b2,
    i0 * u.y_b0 + i1 * u.y_b1 + i2 * u.y_b2,
    i0 * u.z_b0 + i1 * u.z_b1 + i2 * u.z_b2,
    line % down * rows,
    item % across * columns,
  );
}
