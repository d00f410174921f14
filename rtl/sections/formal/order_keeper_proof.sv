// Proof of order_keeper: in each class one packet is followed from the switch in front to the one behind. Its unit gets the
// turn after as many packets of its class as were on their way when it was sent, then alone in its class, and keeps it
// until it was used. Nothing is lost where packets are sent as its ports allow.
module order_keeper_proof #(
  parameter int unsigned Units   = 3,
  parameter int unsigned Classes = 2,
  parameter int unsigned Depth   = 4
) (
  input logic                     clk_i,
  input logic [Units-1:0]         class_i,
  input logic                     sent_valid_i,
  input logic [$clog2(Units)-1:0] sent_unit_i,
  input logic [Units-1:0]         taken_i,
  input logic [Classes-1:0]       follow_i  // picks the packets that are followed
);
  localparam int unsigned CountWidth = $clog2(Depth + 1);

  logic rst_nq = 1'b0;
  logic ready_q = 1'b0;
  logic [Units-1:0] class_q;
  logic [Units-1:0][0:0] classes;
  logic ready;
  logic [Units-1:0] turn;
  always_ff @(posedge clk_i) begin
    rst_nq  <= 1'b1;
    ready_q <= ready && rst_nq;
    class_q <= class_i;
  end
  for (genvar u = 0; u < Units; u++) begin : gen_class_of
    assign classes[u] = class_i[u];
  end

  order_keeper #(
    .Units(Units),
    .Classes(Classes),
    .Depth(Depth)
  ) u_keeper (
    .clk_i,
    .rst_ni(rst_nq),
    .class_i(classes),
    .sent_valid_i,
    .sent_unit_i,
    .sent_ready_o(ready),
    .turn_o(turn),
    .taken_i
  );

  always_ff @(posedge clk_i) begin
    if (rst_nq) begin
      assume (class_i == class_q);
      assume (sent_unit_i < Units);
      assume (!sent_valid_i || ready || ready_q);
      // At most one of those whose turn it is.
      assume ((taken_i & ~turn) == '0 && $onehot0(taken_i));
    end else begin
      assume (!sent_valid_i && taken_i == '0);
    end
  end

  for (genvar c = 0; c < Classes; c++) begin : gen_follow
    logic inside_q = 1'b0;
    logic gone_q = 1'b0;
    logic [CountWidth-1:0] ahead_q, count;
    logic [$clog2(Units)-1:0] unit_q;
    logic [Units-1:0] mine;
    logic put, get;
    assign count = u_keeper.gen_class[c].count;
    assign mine  = c == 0 ? ~class_i : class_i;
    assign put   = sent_valid_i && mine[sent_unit_i];
    assign get   = |(taken_i & mine);

    always_ff @(posedge clk_i) begin
      if (rst_nq) begin
        if (put && follow_i[c] && !inside_q && !gone_q) begin
          inside_q <= 1'b1;
          unit_q   <= sent_unit_i;
          ahead_q  <= count - CountWidth'(get);
        end else if (inside_q && get) begin
          ahead_q  <= ahead_q - 1'b1;
          inside_q <= ahead_q != '0;
          gone_q   <= ahead_q == '0;
        end
      end
    end

    always_ff @(posedge clk_i) begin
      if (rst_nq) begin
        assert ($onehot0(turn & mine));
        assert (!put || count != Depth);
        if (inside_q) begin
          assert (ahead_q < count);
          if (ahead_q == '0) assert ((turn & mine) == Units'(1) << unit_q);
          // What induction needs: the packet lies where the count says.
          assert (u_keeper.gen_class[c].u_order.mem[2'(u_keeper.gen_class[c].u_order.head_q + ahead_q)] == unit_q);
          assert (unit_q < Units && mine[unit_q]);
        end
        assert (count <= Depth && (!ready_q || count < Depth));
        assert (2'(u_keeper.gen_class[c].u_order.tail_q - u_keeper.gen_class[c].u_order.head_q) == 2'(count));
        cover (gone_q && count == CountWidth'(Depth));
      end
    end
  end
endmodule
