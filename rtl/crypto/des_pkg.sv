// DES (FIPS 46-3). Bits are counted from the left, the first is the highest.
package des_pkg;
  typedef logic [31:0] half_t;

  // The S-boxes by row, the first entry in the highest bits.
  localparam logic [255:0] Sboxes[8] = '{
    256'he4d12fb83a6c5907_0f74e2d1a6cb9538_41e8d62bfc973a50_fc8249175b3ea06d,
    256'hf18e6b34972dc05a_3d47f28ec01a69b5_0e7ba4d158c6932f_d8a13f42b67c05e9,
    256'ha09e63f51dc7b428_d709346a285ecbf1_d6498f30b12c5ae7_1ad069874fe3b52c,
    256'h7de3069a1285bc4f_d8b56f03472c1ae9_a690cb7df13e5284_3f06a1d8945bc72e,
    256'h2c417ab6853fd0e9_eb2c47d150fa3986_421bad78f9c5630e_b8c71e2d6f09a453,
    256'hc1af92680d34e75b_af427c9561de0b38_9ef528c3704a1db6_432c95fabe17608d,
    256'h4b2ef08d3c975a61_d0b7491ae35c2f86_14bdc37eaf680592_6bd814a7950fe23c,
    256'hd2846fb1a93e50c7_1fd8a374c56b0e92_7b419ce206adf358_21e74a8dfc90356b
  };

  // Bit i of a permutation's result is bit P[i] of what goes in.
  localparam int unsigned P[32] = '{
    16, 7, 20, 21, 29, 12, 28, 17, 1, 15, 23, 26, 5, 18, 31, 10,
    2, 8, 24, 14, 32, 27, 3, 9, 19, 13, 30, 6, 22, 11, 4, 25
  };
  localparam int unsigned ChoiceC[28] = '{
    57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18, 10, 2, 59, 51, 43, 35, 27, 19, 11, 3, 60, 52, 44, 36
  };
  localparam int unsigned ChoiceD[28] = '{
    63, 55, 47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37, 29, 21, 13, 5, 28, 20, 12, 4
  };
  localparam int unsigned Choice2[48] = '{
    14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10, 23, 19, 12, 4, 26, 8, 16, 7, 27, 20, 13, 2,
    41, 52, 31, 37, 47, 55, 30, 40, 51, 45, 33, 48, 44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32
  };

  // An S-box with P behind it: what six bits in become in f's result.
  typedef half_t table_t[64];
  function automatic table_t make_table(int unsigned box);
    for (int unsigned in = 0; in < 64; in++) begin
      int unsigned row, column;
      logic [3:0] found;
      half_t spread;
      row    = 2 * (in / 32) + in % 2;
      column = in / 2 % 16;
      found  = Sboxes[box][4*(63-16*row-column)+:4];
      spread = '0;
      for (int unsigned i = 0; i < 32; i++) begin
        if ((P[i] - 1) / 4 == box) spread[31-i] = found[3-(P[i]-1)%4];
      end
      make_table[in] = spread;
    end
  endfunction
  localparam table_t Table0 = make_table(0);
  localparam table_t Table1 = make_table(1);
  localparam table_t Table2 = make_table(2);
  localparam table_t Table3 = make_table(3);
  localparam table_t Table4 = make_table(4);
  localparam table_t Table5 = make_table(5);
  localparam table_t Table6 = make_table(6);
  localparam table_t Table7 = make_table(7);

  // f: the expansion E gives each S-box four bits and one of each neighbour.
  function automatic half_t cipher_function(half_t r, logic [47:0] key);
    logic [33:0] around;
    around = {r[0], r, r[31]};
    return Table0[around[33:28]^key[47:42]] | Table1[around[29:24]^key[41:36]] |
        Table2[around[25:20]^key[35:30]] | Table3[around[21:16]^key[29:24]] |
        Table4[around[17:12]^key[23:18]] | Table5[around[13:8]^key[17:12]] |
        Table6[around[9:4]^key[11:6]] | Table7[around[5:0]^key[5:0]];
  endfunction

  // PC-1 leaves the parity bits out; C is the upper half.
  function automatic logic [55:0] choose_key(logic [63:0] key);
    for (int unsigned i = 0; i < 28; i++) begin
      choose_key[55-i] = key[64-ChoiceC[i]];
      choose_key[27-i] = key[64-ChoiceD[i]];
    end
  endfunction

  function automatic logic [47:0] round_key(logic [55:0] key);
    for (int unsigned i = 0; i < 48; i++) round_key[47-i] = key[56-Choice2[i]];
  endfunction

  // C and D as they stand in a round, counted from 0: turned left by 1, 2, 4 .. 14, 15, 17 .. 27, 28 bits.
  function automatic logic [55:0] turned(logic [55:0] key, int unsigned round);
    int unsigned by;
    by = 2 * round + (round == 0 ? 1 : 0) - (round >= 8 ? 1 : 0) - (round == 15 ? 1 : 0);
    return {key[55:28] << by | key[55:28] >> (28 - by), key[27:0] << by | key[27:0] >> (28 - by)};
  endfunction

  // IP takes the even bits of the bytes, then the odd ones; each row has one bit of every byte, the last byte's first.
  function automatic logic [63:0] initial_permutation(logic [63:0] in);
    for (int unsigned i = 0; i < 64; i++) begin
      initial_permutation[63-i] = in[8*(i%8)+7-(i<32?2*(i/8)+1:2*((i-32)/8))];
    end
  endfunction

  function automatic logic [63:0] final_permutation(logic [63:0] in);
    for (int unsigned i = 0; i < 64; i++) begin
      final_permutation[8*(i%8)+7-(i<32?2*(i/8)+1:2*((i-32)/8))] = in[63-i];
    end
  endfunction
endpackage
