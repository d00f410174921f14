// AES (FIPS 197): the S-box from its definition, as a table and in the tower field GF((2^4)^2).
//
// The tower field makes a small S-box: an element is high*z + low with z^2 = z + Lambda over GF(2^4) = GF(2)[y]/(y^4 + y + 1),
// and its inverse costs one inverse and three products in GF(2^4). All constants are found at elaboration.
package aes_pkg;
  localparam int unsigned Rounds = 14;
  // AES-128 has ten: a block passes the first four untouched.
  localparam int unsigned Rounds128 = 10;

  typedef logic [7:0] byte_t;
  typedef logic [3:0] nibble_t;
  typedef byte_t table_t[256];
  // A block: [15] is byte 0, the most significant one; byte 4c+r is row r of column c.
  typedef byte_t [15:0] bytes_t;
  // Eight columns of an 8 x 8 matrix over GF(2).
  typedef byte_t [7:0] matrix_t;

  function automatic byte_t xtime(byte_t a);
    return {a[6:0], 1'b0} ^ ({8{a[7]}} & 8'h1b);
  endfunction

  // In GF(2^8); the modulus is given without x^8.
  function automatic byte_t field_multiply(byte_t a, byte_t b, byte_t modulus);
    byte_t shifted;
    shifted        = a;
    field_multiply = '0;
    for (int unsigned i = 0; i < 8; i++) begin
      if (b[i]) field_multiply ^= shifted;
      shifted = {shifted[6:0], 1'b0} ^ ({8{shifted[7]}} & modulus);
    end
  endfunction

  function automatic byte_t multiply(byte_t a, byte_t b);
    return field_multiply(a, b, 8'h1b);
  endfunction

  // ShiftRows: row r of column c comes from column c + r.
  function automatic bytes_t shift_rows(bytes_t in);
    for (int unsigned i = 0; i < 16; i++) shift_rows[15-i] = in[15-(5*i)%16];
  endfunction

  // All columns at once: a rotation within each column brings the other rows.
  function automatic bytes_t rotate_columns(bytes_t in, int unsigned rows);
    for (int unsigned i = 0; i < 16; i++) rotate_columns[15-i] = in[15-(i/4*4+(i+rows)%4)];
  endfunction

  function automatic bytes_t mix_columns(bytes_t in);
    bytes_t next;
    next = rotate_columns(in, 1);
    for (int unsigned i = 0; i < 16; i++) mix_columns[i] = xtime(in[i] ^ next[i]);
    mix_columns ^= next ^ rotate_columns(in, 2) ^ rotate_columns(in, 3);
  endfunction

  // 5.1.1: the inverse, a^254 (0 stays 0), then the affine map.
  function automatic byte_t affine(byte_t a);
    return a ^ {a[6:0], a[7]} ^ {a[5:0], a[7:6]} ^ {a[4:0], a[7:5]} ^ {a[3:0], a[7:4]} ^ 8'h63;
  endfunction

  function automatic table_t make_sbox();
    for (int unsigned i = 0; i < 256; i++) begin
      byte_t square, inverse;
      square  = 8'(i);
      inverse = 8'd1;
      for (int unsigned j = 0; j < 7; j++) begin
        square  = multiply(square, square);
        inverse = multiply(inverse, square);
      end
      make_sbox[i] = affine(inverse);
    end
  endfunction

  localparam table_t Sbox = make_sbox();

  localparam nibble_t Lambda = 4'h8;

  function automatic nibble_t nibble_multiply(nibble_t a, nibble_t b);
    logic [6:0] p;
    p = ({3'b0, a} & {7{b[0]}}) ^ ({2'b0, a, 1'b0} & {7{b[1]}}) ^
        ({1'b0, a, 2'b0} & {7{b[2]}}) ^ ({a, 3'b0} & {7{b[3]}});
    return p[3:0] ^ {1'b0, p[6:4]} ^ {p[6:4], 1'b0};
  endfunction

  function automatic byte_t tower_multiply(byte_t a, byte_t b);
    nibble_t high, low, middle;
    high  = nibble_multiply(a[7:4], b[7:4]);
    low   = nibble_multiply(a[3:0], b[3:0]);
    middle = nibble_multiply(a[7:4], b[3:0]) ^ nibble_multiply(a[3:0], b[7:4]);
    return {high ^ middle, low ^ nibble_multiply(high, Lambda)};
  endfunction

  function automatic byte_t apply(matrix_t m, byte_t a);
    apply = '0;
    for (int unsigned i = 0; i < 8; i++) apply ^= m[i] & {8{a[i]}};
  endfunction

  // The powers of a root of x^8 + x^4 + x^3 + x + 1 carry the AES field into the tower.
  function automatic matrix_t make_to_tower();
    logic found;
    found = 1'b0;
    make_to_tower = '0;
    for (int unsigned root = 2; root < 256; root++) begin
      matrix_t powers;
      byte_t   next;
      powers[0] = 8'd1;
      for (int unsigned i = 1; i < 8; i++) powers[i] = tower_multiply(powers[i-1], 8'(root));
      next = tower_multiply(powers[7], 8'(root));
      if (!found && next == (powers[4] ^ powers[3] ^ powers[1] ^ powers[0])) begin
        make_to_tower = powers;
        found = 1'b1;
      end
    end
  endfunction

  localparam matrix_t ToTower = make_to_tower();

  function automatic matrix_t make_from_tower();
    make_from_tower = '0;
    for (int unsigned a = 0; a < 256; a++) begin
      byte_t image;
      image = apply(ToTower, 8'(a));
      for (int unsigned i = 0; i < 8; i++) if (image == 8'd1 << i) make_from_tower[i] = 8'(a);
    end
  endfunction

  localparam matrix_t FromTower = make_from_tower();

  function automatic nibble_t nibble_invert(nibble_t a);
    nibble_t a2, a4, a8;
    a2 = nibble_multiply(a, a);
    a4 = nibble_multiply(a2, a2);
    a8 = nibble_multiply(a4, a4);
    return nibble_multiply(nibble_multiply(a2, a4), a8);  // a^14
  endfunction

  // SubBytes in three steps: norm of the element, product with its inverse, back to bytes.
  function automatic nibble_t tower_norm(byte_t t);
    return nibble_multiply(nibble_multiply(t[7:4], t[7:4]), Lambda) ^ nibble_multiply(t[7:4] ^ t[3:0], t[3:0]);
  endfunction

  function automatic byte_t tower_inverse(byte_t t, nibble_t norm);
    nibble_t inverse;
    inverse = nibble_invert(norm);
    return {nibble_multiply(t[7:4], inverse), nibble_multiply(t[7:4] ^ t[3:0], inverse)};
  endfunction

  function automatic byte_t tower_leave(byte_t t);
    return affine(apply(FromTower, t));
  endfunction
endpackage
