// DES, or Triple-DES with three keys (SP 800-67): a pipeline, one block a cycle, 16 or 48 cycles long.
//
// One round a stage; a block's key travels with it, so each block may have its own. There is no stall: who feeds it
// keeps room for what is inside. DES protects nothing today; it is here to compare with designs that have it.
module des_core
  import des_pkg::*;
#(
  parameter bit Open   = 1'b0,  // decrypts
  parameter bit Triple = 1'b0,
  localparam int unsigned Keys = Triple ? 3 : 1
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               valid_i,
  input  logic [       63:0] data_i,  // the first byte in the highest bits
  input  logic [64*Keys-1:0] key_i,   // the first key in the highest bits; parity is not looked at
  output logic               valid_o,
  output logic [       63:0] data_o
);
  localparam int unsigned Stages = 16 * Keys;

  logic [Stages-1:0] valid_q;
  assign valid_o = valid_q[Stages-1];
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) valid_q <= '0;
    else valid_q <= Stages'({valid_q, valid_i});
  end

  // What goes into each stage; the keys that later stages want, the next one's in the highest bits.
  typedef logic [Keys-1:0][55:0] keys_t;
  half_t left[Stages+1], right[Stages+1];
  keys_t keys[Stages+1];

  assign {left[0], right[0]} = initial_permutation(data_i);
  for (genvar i = 0; i < Keys; i++) begin : g_key
    assign keys[0][i] = choose_key(key_i[64*(Open?Keys-1-i:i)+:64]);
  end
  assign data_o = final_permutation({right[Stages], left[Stages]});

  for (genvar i = 0; i < Stages; i++) begin : g_stage
    // Every second pass goes the other way, and each takes the halves as the one before leaves them: exchanged.
    localparam bit Backwards = Open != (i / 16 % 2 == 1);
    localparam bit Exchange = i % 16 == 0 && i != 0;
    localparam int unsigned Round = Backwards ? 15 - i % 16 : i % 16;
    half_t l, r, left_q, right_q;
    keys_t keys_q;
    assign {l, r} = Exchange ? {right[i], left[i]} : {left[i], right[i]};
    always_ff @(posedge clk_i) begin
      left_q  <= r;
      right_q <= l ^ cipher_function(r, round_key(turned(keys[i][Keys-1], Round)));
      keys_q  <= i % 16 == 15 ? keys[i] << 56 : keys[i];
    end
    assign left[i+1]  = left_q;
    assign right[i+1] = right_q;
    assign keys[i+1]  = keys_q;
  end

  logic unused;
  assign unused = &{1'b0, keys[Stages], key_i};
endmodule
