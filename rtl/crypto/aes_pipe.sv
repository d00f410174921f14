// AES-256 and AES-128 encryption, one block a cycle, a new key for every packet.
//
// start_i comes with the first block under a new key and the first half of that key; the second half follows in the next
// cycle, and starts are at least 15 cycles apart. block_o is the encrypted block_i Latency cycles later.
//
// Round keys travel as a wave. The expander gives one a cycle into a chain that has RoundLatency - 1 registers a round, so
// round key r passes round r exactly when the first block under it is about to arrive, and the round keeps it until the next
// start. Blocks of two keys follow each other without a gap, and every wire of the chain is short.
module aes_pipe
  import aes_pkg::*, esp_pkg::*;
#(
  parameter int unsigned RoundLatency = 2,
  parameter int unsigned SboxKind = 0,
  localparam int unsigned Latency = 3 + Rounds * RoundLatency
) (
  input  logic   clk_i,
  input  logic   rst_ni,
  input  logic   start_i,
  input  logic   aes128_i,  // with start_i
  input  block_t raw_i,
  input  block_t block_i,
  output block_t block_o
);
  localparam int unsigned Hops = RoundLatency - 1;
  localparam int unsigned Enter128 = Rounds - aes_pkg::Rounds128;

  block_t expanded;
  aes_expand u_expand (
    .clk_i,
    .rst_ni,
    .start_i,
    .aes128_i,
    .raw_i,
    .key_o(expanded)
  );

  // first_q[i]: the first block under a new key went in i + 1 cycles ago.
  logic [Latency-3:0] first_q;
  logic [Enter128*RoundLatency:0] aes128_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) first_q <= '0;
    else first_q <= {first_q[Latency-4:0], start_i};
  end
  always_ff @(posedge clk_i) aes128_q <= {aes128_q[Enter128*RoundLatency-1:0], aes128_i};

  block_t chain[Rounds+1];
  block_t key_q[Rounds+1];
  assign chain[0] = expanded;
  for (genvar r = 0; r <= Rounds; r++) begin : g_key
    if (r > 0) begin : g_hop
      block_t [Hops-1:0] hop_q;
      always_ff @(posedge clk_i) hop_q <= ($bits(hop_q))'({hop_q, chain[r-1]});
      assign chain[r] = hop_q[Hops-1];
    end
    always_ff @(posedge clk_i) if (first_q[r*RoundLatency]) key_q[r] <= chain[r];
  end

  block_t block_q, block_qq;
  block_t state[Rounds+1];
  always_ff @(posedge clk_i) begin
    block_q  <= block_i;
    block_qq <= block_q;
    state[0] <= block_qq ^ key_q[0];
  end

  // AES-128 enters behind round 4.
  logic   enter_q;
  block_t around;
  always_ff @(posedge clk_i) if (first_q[Enter128*RoundLatency]) enter_q <= aes128_q[Enter128*RoundLatency];
  delay_line #(
    .Width(128),
    .Depth(Enter128 * RoundLatency - 1)
  ) u_around (
    .clk_i,
    .rst_ni,
    .data_i(state[0]),
    .data_o(around)
  );

  for (genvar r = 1; r <= Rounds; r++) begin : g_round
    aes_round #(
      .Final(r == Rounds),
      .Entrance(r == Enter128),
      .SboxKind(SboxKind),
      .Latency(RoundLatency)
    ) u_round (
      .clk_i,
      .state_i(state[r-1]),
      .key_i(key_q[r]),
      .enter_i(enter_q),
      .around_i(around),
      .state_o(state[r])
    );
  end
  assign block_o = state[Rounds];
endmodule
