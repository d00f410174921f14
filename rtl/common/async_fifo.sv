// First-in first-out queue from one clock to another.
//
// The pointers cross in Gray code through two flip-flops, so that a pointer seen from the other side is an old one at
// worst: the queue then looks fuller, or emptier, than it is. Both sides must be reset together.
module async_fifo #(
  parameter int unsigned Width = 8,
  parameter int unsigned Depth = 8  // a power of two, at least 4
) (
  input  logic             put_clk_i,
  input  logic             put_rst_ni,
  input  logic             put_valid_i,
  output logic             put_ready_o,
  input  logic [Width-1:0] put_data_i,
  input  logic             get_clk_i,
  input  logic             get_rst_ni,
  output logic             get_valid_o,
  input  logic             get_ready_i,
  output logic [Width-1:0] get_data_o
);
  localparam int unsigned AddrWidth = $clog2(Depth);
  typedef logic [AddrWidth:0] pointer_t;

  function automatic pointer_t gray(pointer_t binary);
    return binary ^ (binary >> 1);
  endfunction

  logic [Width-1:0] mem[Depth];
  pointer_t tail_q, tail_d, tail_gray_q, head_q, head_d, head_gray_q;
  (* async_reg = "true" *) pointer_t head_seen_q[2];
  (* async_reg = "true" *) pointer_t tail_seen_q[2];
  logic put, get;

  // Full: the other pointer, one round behind. In Gray code that is the two upper bits inverted.
  assign put_ready_o = tail_gray_q != (head_seen_q[1] ^ pointer_t'(3) << (AddrWidth - 1));
  assign put         = put_valid_i && put_ready_o;
  assign tail_d      = tail_q + pointer_t'(put);

  always_ff @(posedge put_clk_i or negedge put_rst_ni) begin
    if (!put_rst_ni) begin
      tail_q      <= '0;
      tail_gray_q <= '0;
      head_seen_q <= '{default: '0};
    end else begin
      tail_q         <= tail_d;
      tail_gray_q    <= gray(tail_d);
      head_seen_q[0] <= head_gray_q;
      head_seen_q[1] <= head_seen_q[0];
    end
  end
  always_ff @(posedge put_clk_i) if (put) mem[tail_q[AddrWidth-1:0]] <= put_data_i;

  assign get_valid_o = head_gray_q != tail_seen_q[1];
  assign get         = get_valid_o && get_ready_i;
  assign head_d      = head_q + pointer_t'(get);
  assign get_data_o  = mem[head_q[AddrWidth-1:0]];

  always_ff @(posedge get_clk_i or negedge get_rst_ni) begin
    if (!get_rst_ni) begin
      head_q      <= '0;
      head_gray_q <= '0;
      tail_seen_q <= '{default: '0};
    end else begin
      head_q         <= head_d;
      head_gray_q    <= gray(head_d);
      tail_seen_q[0] <= tail_gray_q;
      tail_seen_q[1] <= tail_seen_q[0];
    end
  end
endmodule
