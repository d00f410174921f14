// Proof of stream_fifo: one word is followed through the queue. It comes out exactly once, unchanged, after as many
// words as were inside when it came.
module stream_fifo_proof #(
  parameter int unsigned Width = 4,
  parameter int unsigned Depth = 4,
  parameter bit          Extra = 1'b0
) (
  input logic             clk_i,
  input logic             valid_i,
  input logic [Width-1:0] data_i,
  input logic             ready_i,
  input logic             follow_i  // picks the word that is followed
);
  localparam int unsigned CountWidth = $clog2(Depth + (Extra ? 3 : 2));

  logic rst_nq = 1'b0;
  always_ff @(posedge clk_i) rst_nq <= 1'b1;

  logic ready_o, valid_o;
  logic [Width-1:0] data_o;
  logic [CountWidth-1:0] count;
  stream_fifo #(
    .Width(Width),
    .Depth(Depth),
    .Extra(Extra)
  ) u_fifo (
    .clk_i,
    .rst_ni(rst_nq),
    .valid_i,
    .ready_o,
    .data_i,
    .valid_o,
    .ready_i,
    .data_o,
    .count_o(count)
  );

  // The followed word: where it is in line (0 is at the output), and its value.
  logic inside_q = 1'b0;
  logic gone_q = 1'b0;
  logic [CountWidth-1:0] ahead_q;
  logic [Width-1:0] value_q;

  logic put, get;
  assign put = valid_i && ready_o;
  assign get = valid_o && ready_i;

  always_ff @(posedge clk_i) begin
    if (rst_nq) begin
      if (put && follow_i && !inside_q && !gone_q) begin
        inside_q <= 1'b1;
        value_q  <= data_i;
        ahead_q  <= count - CountWidth'(get);
      end else if (inside_q && get) begin
        ahead_q  <= ahead_q - 1'b1;
        inside_q <= ahead_q != '0;
        gone_q   <= ahead_q == '0;
      end
    end
  end

  // Cycles in which a word was inside and none at the output.
  logic [1:0] waits_q = '0;

  // Words in front of the memory.
  logic [1:0] front;
  assign front = 2'(valid_o) + 2'(Extra && u_fifo.read_valid_q);

  always_ff @(posedge clk_i) begin
    if (rst_nq) begin
      // What induction needs: the word lies where the count says.
      if (inside_q) begin
        assert (ahead_q < count);
        if (ahead_q == '0 && valid_o) assert (data_o == value_q);
        else if (ahead_q < CountWidth'(front)) assert (u_fifo.read_q == value_q);
        else assert (u_fifo.mem[2'(u_fifo.head_q + (ahead_q - CountWidth'(front)))] == value_q);
      end
      assert (u_fifo.stored <= Depth);
      assert (u_fifo.full_q == (u_fifo.stored == Depth));
      assert (u_fifo.some_q == (u_fifo.stored != '0));
      // Never stuck: a queue that is not full takes, and one that is not empty gives after a cycle, with Extra two.
      assert (ready_o || count >= Depth);
      assert (waits_q <= (Extra ? 2'd2 : 2'd1));
      waits_q <= valid_o || count == '0 ? '0 : waits_q + 1'b1;
      cover (gone_q && count == CountWidth'(Depth));
    end
  end
endmodule
