// Proof of rr_arbiter: one grant where somebody asks, none otherwise, and whoever keeps asking is granted after at most
// Width - 1 others.
module rr_arbiter_proof #(
  parameter int unsigned Width = 5
) (
  input logic                     clk_i,
  input logic [        Width-1:0] request_i,
  input logic                     take_i,
  input logic [$clog2(Width)-1:0] follow_i    // the one that is followed
);
  localparam int unsigned IndexWidth = $clog2(Width);
  localparam int unsigned CountWidth = $clog2(2 * Width + 1);

  logic rst_nq = 1'b0;
  always_ff @(posedge clk_i) rst_nq <= 1'b1;

  logic [Width-1:0] grant;
  logic [IndexWidth-1:0] index, follow_q, last;
  rr_arbiter #(
    .Width(Width)
  ) u_arbiter (
    .clk_i,
    .rst_ni(rst_nq),
    .request_i,
    .take_i,
    .grant_o(grant),
    .index_o(index)
  );

  // How often others were granted while the followed one was asking, and how many are in front of it.
  logic [CountWidth-1:0] others_q = '0;
  logic [CountWidth-1:0] ahead;
  logic asks;
  assign asks = request_i[follow_q];

  always_ff @(posedge clk_i) begin
    follow_q <= rst_nq ? follow_q : follow_i;
    if (!rst_nq || !asks) others_q <= '0;
    else if (take_i) others_q <= grant[follow_q] ? '0 : others_q + 1'b1;
  end

  always_comb begin
    last = IndexWidth'(Width - 1);
    for (int unsigned i = 0; i < Width - 1; i++) if (u_arbiter.behind_q == ~((Width'(2) << i) - 1'b1)) last = IndexWidth'(i);
    ahead = follow_q > last ? CountWidth'(follow_q - last) - 1'b1 : CountWidth'(Width - 1) - CountWidth'(last - follow_q);
  end

  always_ff @(posedge clk_i) begin
    if (!rst_nq) assume (follow_i < IndexWidth'(Width));
    if (rst_nq) begin
      assert (follow_q < IndexWidth'(Width));
      assert ((grant & (grant - 1'b1)) == '0);
      assert ((grant & ~request_i) == '0);
      assert ((grant != '0) == (request_i != '0));
      if (grant != '0) assert (grant[index]);
      // What induction needs: behind_q is a thermometer, and every grant to another brings the turn nearer.
      assert (u_arbiter.behind_q == '1 || u_arbiter.behind_q == '0 || last != IndexWidth'(Width - 1));
      assert (others_q + ahead < CountWidth'(Width));
      assert (others_q < CountWidth'(Width));
      cover (others_q == CountWidth'(Width - 1) && grant[follow_q]);
    end
  end
endmodule
