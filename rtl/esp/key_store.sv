// The secrets of all SAs: AES keys, powers of H or HMAC states, salts. Written by the configuration bus, read by the cipher only.
//
// Words of a row: 0-7 AES key; 8-23 H, H^2, H^3, H^4, or the inner and outer state of HMAC-SHA-256; 24 salt or nonce; each
// with its first byte in bits 31:24; 25 the generation of the SA whose they are, to be written last, and first as 0. A write to
// word 63 wipes the row. After reset the store wipes all rows. cfg_ready_o is low while it wipes.
module key_store
  import esp_pkg::*;
#(
  parameter  int unsigned Rows = 1024,  // a power of two, at most 1024
  localparam int unsigned IndexWidth = $clog2(Rows)
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        cfg_valid_i,
  output logic        cfg_ready_o,
  input  logic [ 9:0] cfg_row_i,
  input  logic [ 5:0] cfg_word_i,
  input  logic [31:0] cfg_data_i,
  // Two cycles later:
  input  logic [ 9:0] row_i,
  input  logic        half_i,
  input  logic [ 1:0] auth_word_i,
  output block_t      key_o,
  output block_t      auth_o,
  output generation_t generation_o,
  // Likewise, and held until it is read again.
  input  logic        salt_read_i,
  output logic [31:0] salt_o
);
  localparam logic [5:0] SaltWord = 6'd24;
  localparam logic [5:0] GenerationWord = 6'd25;
  localparam logic [5:0] WipeWord = 6'd63;

  typedef logic [IndexWidth-1:0] index_t;

  // Wiping takes four cycles a row.
  logic wipe_q, all_q, taken, write_q;
  logic [1:0] step_q;
  index_t row_q;
  logic [5:0] word_q;
  logic [31:0] data_q;

  assign cfg_ready_o = !wipe_q;
  // Rows that do not exist must not change one that does.
  assign taken = cfg_valid_i && cfg_ready_o && {22'b0, cfg_row_i} < Rows;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      wipe_q  <= 1'b1;
      all_q   <= 1'b1;
      step_q  <= '0;
      row_q   <= '0;
      write_q <= 1'b0;
    end else begin
      write_q <= taken && cfg_word_i != WipeWord;
      if (wipe_q) begin
        step_q <= step_q + 1'b1;
        if (step_q == 2'd3) begin
          wipe_q <= all_q && row_q != index_t'(Rows - 1);
          row_q  <= row_q + 1'b1;
        end
      end else begin
        all_q <= 1'b0;
        if (taken) begin
          wipe_q <= cfg_word_i == WipeWord;
          row_q  <= index_t'(cfg_row_i);
        end
      end
    end
  end

  always_ff @(posedge clk_i) if (cfg_ready_o) word_q <= cfg_word_i;
  // What wipes is 0 itself: nothing more lies in the long ways to the memories.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) data_q <= '0;
    else if (cfg_ready_o) data_q <= cfg_word_i == WipeWord ? '0 : cfg_data_i;
  end

  logic key_write, auth_write, salt_write, generation_write;
  logic [1:0] auth_word;
  logic half;
  logic [31:0] data;
  assign key_write  = wipe_q || (write_q && word_q < 6'd8);
  assign auth_write = wipe_q || (write_q && word_q >= 6'd8 && word_q < SaltWord);
  assign salt_write = wipe_q || (write_q && word_q == SaltWord);
  assign generation_write = wipe_q || (write_q && word_q == GenerationWord);
  assign half       = wipe_q ? step_q[0] : word_q[2];
  assign auth_word  = wipe_q ? step_q : {word_q[4], word_q[2]};
  assign data       = data_q;

  index_t row;
  assign row = index_t'(row_i);

  for (genvar column = 0; column < 4; column++) begin : g_column
    logic [31:0] keys[2*Rows];
    logic [31:0] auths[4*Rows];
    logic [31:0] key_q, auth_q;
    logic mine;
    assign mine = wipe_q || word_q[1:0] == 2'(column);

    always_ff @(posedge clk_i) begin
      if (key_write && mine) keys[{row_q, half}] <= data;
      if (auth_write && mine) auths[{row_q, auth_word}] <= data;
      key_q  <= keys[{row, half_i}];
      auth_q <= auths[{row, auth_word_i}];
      key_o[127-32*column-:32]  <= key_q;
      auth_o[127-32*column-:32] <= auth_q;
    end
  end

  logic [31:0] salts[Rows];
  logic [31:0] salt_q;
  always_ff @(posedge clk_i) begin
    if (salt_write) salts[row_q] <= data;
    if (salt_read_i) salt_q <= salts[row];
    salt_o <= salt_q;
  end

  generation_t generations[Rows];
  generation_t generation_q;
  always_ff @(posedge clk_i) begin
    if (generation_write) generations[row_q] <= data[GenerationWidth-1:0];
    generation_q <= generations[row];
    generation_o <= generation_q;
  end
endmodule
