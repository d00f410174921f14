// Proof of async_fifo with two clocks that tick as they like: one word is followed through the queue and comes out unchanged,
// exactly once, in its place. What is seen of a pointer on the other side is never ahead of it, and changes one bit at a time, so
// that a flip-flop which samples it in that moment holds the old value or the new.
module async_fifo_proof #(
  parameter int unsigned Width = 2,
  parameter int unsigned Depth = 4
) (
  input logic             put_clk_i,
  input logic             get_clk_i,
  input logic             valid_i,
  input logic [Width-1:0] data_i,
  input logic             ready_i,
  input logic             follow_i  // picks the word that is followed
);
  localparam int unsigned AddrWidth = $clog2(Depth);
  typedef logic [AddrWidth:0] pointer_t;

  function automatic pointer_t gray(pointer_t binary);
    return binary ^ (binary >> 1);
  endfunction
  function automatic pointer_t binary(pointer_t g);
    pointer_t b;
    b = g;
    for (int unsigned s = 1; s <= AddrWidth; s++) b = b ^ (g >> s);
    return b;
  endfunction

  logic rst_nq = 1'b0;
  always_ff @(posedge put_clk_i) rst_nq <= 1'b1;

  logic ready_o, valid_o;
  logic [Width-1:0] data_o;
  async_fifo #(
    .Width(Width),
    .Depth(Depth)
  ) u_fifo (
    .put_clk_i,
    .put_rst_ni (rst_nq),
    .put_valid_i(valid_i),
    .put_ready_o(ready_o),
    .put_data_i (data_i),
    .get_clk_i,
    .get_rst_ni (rst_nq),
    .get_valid_o(valid_o),
    .get_ready_i(ready_i),
    .get_data_o (data_o)
  );

  // The followed word: its place and value, whether it came in, whether it went out.
  logic in_q, out_q;
  pointer_t at_q, tail_before_q, head_before_q;
  logic [Width-1:0] value_q;
  always_ff @(posedge put_clk_i or negedge rst_nq) begin
    if (!rst_nq) begin
      in_q          <= 1'b0;
      at_q          <= '0;
      value_q       <= '0;
      tail_before_q <= '0;
    end else begin
      tail_before_q <= u_fifo.tail_gray_q;
      if (valid_i && ready_o && follow_i && !in_q) begin
        in_q    <= 1'b1;
        at_q    <= u_fifo.tail_q;
        value_q <= data_i;
      end
    end
  end
  always_ff @(posedge get_clk_i or negedge rst_nq) begin
    if (!rst_nq) begin
      out_q         <= 1'b0;
      head_before_q <= '0;
    end else begin
      head_before_q <= u_fifo.head_gray_q;
      if (valid_o && ready_i && in_q && u_fifo.head_q == at_q) out_q <= 1'b1;
    end
  end

  pointer_t tail, head, stored, head_first, head_second, tail_first, tail_second;
  assign tail        = u_fifo.tail_q;
  assign head        = u_fifo.head_q;
  assign stored      = tail - head;
  assign head_first  = binary(u_fifo.head_seen_q[0]);
  assign head_second = binary(u_fifo.head_seen_q[1]);
  assign tail_first  = binary(u_fifo.tail_seen_q[0]);
  assign tail_second = binary(u_fifo.tail_seen_q[1]);

  always_comb begin
    // Never more than there is room for, and the put side never sees less than is stored, nor the get side more.
    assert (stored <= pointer_t'(Depth));
    assert (pointer_t'(tail - head_first) >= stored);
    assert (pointer_t'(tail - head_second) >= pointer_t'(tail - head_first));
    assert (pointer_t'(tail - head_second) <= pointer_t'(Depth));
    assert (pointer_t'(tail_first - head) <= stored);
    assert (pointer_t'(tail_second - head) <= pointer_t'(tail_first - head));
    // What crosses is in Gray code.
    assert (u_fifo.tail_gray_q == gray(tail) && u_fifo.head_gray_q == gray(head));
    assert (tail_before_q == gray(tail) || tail_before_q == gray(tail - 1'b1));
    assert (head_before_q == gray(head) || head_before_q == gray(head - 1'b1));
    assert ($countones(tail_before_q ^ u_fifo.tail_gray_q) <= 1);
    assert ($countones(head_before_q ^ u_fifo.head_gray_q) <= 1);
    // Never stuck: once the other side's pointer has come across, it takes if there is room and gives if there is a word.
    if (head_second == head) assert (ready_o == (stored != pointer_t'(Depth)));
    if (tail_second == tail) assert (valid_o == (stored != '0));
    // The followed word lies where it was put until it is taken, and then it is what was put.
    assert (in_q || !out_q);
    if (in_q && !out_q) begin
      assert (pointer_t'(at_q - head) < stored);
      assert (u_fifo.mem[at_q[AddrWidth-1:0]] == value_q);
      if (valid_o && head == at_q) assert (data_o == value_q);
    end
    cover (out_q && stored == pointer_t'(Depth));
  end
endmodule
