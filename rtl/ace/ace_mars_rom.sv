// A word of MARS' S-box a cycle from block ROM.
module ace_mars_rom
  import ace_pkg::word_t;
(
  input  logic        clk_i,
  input  logic  [8:0] at_i,
  output word_t       word_o
);
  // The contents of a memory can only be given so.
  (* rom_style = "block" *) word_t rom[512];
  initial for (int unsigned i = 0; i < 512; i++) rom[i] = ace_mars_pkg::Box[i];

  always_ff @(posedge clk_i) word_o <= rom[at_i];
endmodule
