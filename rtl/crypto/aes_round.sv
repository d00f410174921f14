// One round of AES encryption, Latency cycles long, one block a cycle.
//
// The round key is taken in the last cycle. SboxKind: 0 table in logic, 1 tower field, 2 block RAM.
//   Latency 2: SubBytes | the rest.
//   Latency 3: tower field: norm | inverse | the rest; table and block RAM: SubBytes in two cycles (a register behind it).
module aes_round
  import aes_pkg::*, esp_pkg::*;
#(
  parameter bit          Final    = 1'b0,  // no MixColumns
  parameter bit          Entrance = 1'b0,  // enter_i puts around_i into state_o
  parameter int unsigned SboxKind = 0,
  parameter int unsigned Latency  = 2      // 2 or 3
) (
  input  logic   clk_i,
  input  block_t state_i,
  input  block_t key_i,
  input  logic   enter_i,
  input  block_t around_i,
  output block_t state_o
);
  typedef nibble_t [15:0] nibbles_t;

  function automatic bytes_t substitute(bytes_t in);
    for (int unsigned i = 0; i < 16; i++) substitute[i] = Sbox[in[i]];
  endfunction

  function automatic bytes_t tower_enter_all(bytes_t in);
    for (int unsigned i = 0; i < 16; i++) tower_enter_all[i] = apply(ToTower, in[i]);
  endfunction

  function automatic nibbles_t tower_norm_all(bytes_t in);
    for (int unsigned i = 0; i < 16; i++) tower_norm_all[i] = tower_norm(in[i]);
  endfunction

  function automatic bytes_t tower_inverse_all(bytes_t in, nibbles_t norm);
    for (int unsigned i = 0; i < 16; i++) tower_inverse_all[i] = tower_inverse(in[i], norm[i]);
  endfunction

  function automatic bytes_t tower_leave_all(bytes_t in);
    for (int unsigned i = 0; i < 16; i++) tower_leave_all[i] = tower_leave(in[i]);
  endfunction

  bytes_t sub;
  if (SboxKind == 1) begin : g_tower
    bytes_t tower, inverse_q;
    assign tower = tower_enter_all(state_i);
    if (Latency == 2) begin : g_short
      always_ff @(posedge clk_i) inverse_q <= tower_inverse_all(tower, tower_norm_all(tower));
    end else begin : g_long
      bytes_t   tower_q;
      nibbles_t norm_q;
      always_ff @(posedge clk_i) begin
        tower_q   <= tower;
        norm_q    <= tower_norm_all(tower);
        inverse_q <= tower_inverse_all(tower_q, norm_q);
      end
    end
    assign sub = tower_leave_all(inverse_q);
  end else if (SboxKind == 2) begin : g_rom
    for (genvar i = 0; i < 128; i += 16) begin : g_pair
      aes_sbox_rom #(
        .OutputRegister(Latency == 3)
      ) u_sbox (
        .clk_i,
        .a_i(state_i[i+:8]),
        .b_i(state_i[i+8+:8]),
        .a_o(sub[i/8]),
        .b_o(sub[i/8+1])
      );
    end
  end else begin : g_table
    bytes_t [Latency-2:0] sub_q;
    always_ff @(posedge clk_i) sub_q <= ($bits(sub_q))'({sub_q, substitute(state_i)});
    assign sub = sub_q[Latency-2];
  end

  bytes_t shifted;
  block_t mixed;
  assign shifted = shift_rows(sub);
  assign mixed   = Final ? shifted : mix_columns(shifted);

  always_ff @(posedge clk_i) state_o <= Entrance && enter_i ? around_i : mixed ^ key_i;
endmodule
