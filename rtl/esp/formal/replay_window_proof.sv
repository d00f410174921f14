// Proof of replay_window: whatever numbers come, one that was accepted is not accepted again, one that is ahead or in
// the window and has not come is accepted, and the top never moves back.
module replay_window_proof #(
  parameter int unsigned Window = 4,
  parameter int unsigned Width  = 6
) (
  input logic             clk_i,
  input logic [Width-1:0] number_i,
  input logic [Width-1:0] start_i,
  input logic             follow_i   // picks the number that is followed
);
  // A number takes three steps: it is held for two, then what is new is stored.
  logic [1:0] step_q = 2'd0;
  logic running_q = 1'b0;
  logic [Width-1:0] top_q, number_q;
  logic [Window-1:0] seen_q;

  logic fresh;
  logic [Width-1:0] top;
  logic [Window-1:0] seen;
  replay_window #(
    .Window(Window),
    .Width(Width)
  ) u_window (
    .clk_i,
    .off_i(1'b0),
    .top_i(top_q),
    .seen_i(seen_q),
    .number_i(number_q),
    .fresh_o(fresh),
    .top_o(top),
    .seen_o(seen)
  );

  logic followed_q = 1'b0;
  logic [Width-1:0] followed_number_q;

  always_ff @(posedge clk_i) begin
    if (!running_q) begin
      running_q <= 1'b1;
      top_q     <= start_i;
      seen_q    <= Window'(1);
      number_q  <= number_i;
    end else if (step_q == 2'd2) begin
      step_q   <= 2'd0;
      number_q <= number_i;
      if (fresh) begin
        top_q  <= top;
        seen_q <= seen;
        if (follow_i && !followed_q) begin
          followed_q        <= 1'b1;
          followed_number_q <= number_q;
        end
      end
    end else begin
      step_q <= step_q + 2'd1;
    end
  end

  // The bit of the followed number, if it is in the window.
  logic [Width-1:0] behind, back;
  assign behind = top_q - followed_number_q;
  assign back   = top_q - number_q;

  always_ff @(posedge clk_i) begin
    if (running_q) begin
      // The top itself has come; number 0 counts as if it had.
      assert (seen_q[0]);
      assert (step_q != 2'd3);
      if (followed_q) begin
        assert (followed_number_q <= top_q);
        assert (behind >= Width'(Window) || seen_q[behind[$clog2(Window)-1:0]]);
        if (step_q == 2'd2 && number_q == followed_number_q) assert (!fresh);
      end
      if (step_q == 2'd2) begin
        if (number_q > top_q) assert (fresh && top == number_q);
        else assert (top == top_q);
        if (number_q <= top_q && number_q != '0 && back < Width'(Window)) begin
          assert (fresh == !seen_q[back[$clog2(Window)-1:0]]);
        end
        if (number_q == '0 || (number_q < top_q && back >= Width'(Window))) assert (!fresh);
      end
      cover (followed_q && step_q == 2'd2 && number_q < followed_number_q && fresh);
    end
  end
endmodule
