// The three state machines of packet_switch with their queue and type FIFO sets: who is connected to whom.
//
//   1 registers the packets that inputs announce: the input's number goes into the queue of the packet's type;
//   2 takes a type that has both a waiting input and a free output, and connects the two;
//   3 lists outputs that can take a packet in the FIFO of their type, those that became free first in front.
//
// Each does one thing a cycle, in turns, and chooses among those that could have it done a cycle ago: who waits stays
// so until it is served, and who was served just now is left out. So the ways are short, and a type is connected, an
// input registered, every other cycle at most. An input's packets are connected in the order they were announced: it may wait
// in one queue only at a time, in that as often as it has packets. Packets of one input and one type (a flow is always
// of one type) therefore keep their order whatever the outputs do.
module switch_control #(
  parameter  int unsigned Inputs      = 4,
  parameter  int unsigned Outputs     = 4,
  parameter  int unsigned Types       = 2,
  parameter  int unsigned InFrames    = 8,  // the most packets that an input may have announced, a power of two
  parameter  int unsigned OutFrames   = 1,  // the most packets on their way to an output and inside its FIFO
  localparam int unsigned InWidth     = Inputs > 1 ? $clog2(Inputs) : 1,
  localparam int unsigned OutWidth    = Outputs > 1 ? $clog2(Outputs) : 1,
  localparam int unsigned TypeWidth   = Types > 1 ? $clog2(Types) : 1
) (
  input  logic                               clk_i,
  input  logic                               rst_ni,
  // Announced packets, per input in their order.
  input  logic [ Inputs-1:0]                 frame_valid_i,
  input  logic [ Inputs-1:0][TypeWidth-1:0]  frame_type_i,     // below Types
  output logic [ Inputs-1:0]                 frame_ready_o,    // it is registered, at most one a cycle
  input  logic [ Inputs-1:0]                 frame_turn_i,     // it may be registered (order_keeper), until it is
  // Connections.
  output logic [ Inputs-1:0]                 in_connected_o,
  output logic [ Inputs-1:0][ OutWidth-1:0]  in_output_o,
  output logic [Outputs-1:0]                 out_connected_o,
  output logic [Outputs-1:0][  InWidth-1:0]  out_input_o,
  input  logic [ Inputs-1:0]                 in_done_i,        // the packet's last beat goes over
  // Outputs.
  input  logic [Outputs-1:0]                 out_busy_i,       // the unit wants no packet yet
  input  logic [Outputs-1:0][TypeWidth-1:0]  out_type_i,       // must not change
  input  logic [Outputs-1:0]                 out_left_i,       // a packet's last beat leaves the output's FIFO
  // The outputs in the order in which they were connected: what an order_keeper wants.
  output logic                               sent_valid_o,
  output logic [OutWidth-1:0]                sent_output_o,
  input  logic                               sent_ready_i      // for two
);
  localparam int unsigned HeldWidth = $clog2(InFrames + 1);
  localparam int unsigned LoadWidth = $clog2(OutFrames + 1);
  localparam int unsigned QueueDepth = 2 ** $clog2(Inputs * InFrames > 2 ? Inputs * InFrames : 2);
  localparam int unsigned TypeDepth = 2 ** $clog2(Outputs > 2 ? Outputs : 2);

  logic [Types-1:0] queue_put, queue_get, queue_valid;
  logic [Types-1:0][InWidth-1:0] queue_input;
  logic [Types-1:0] type_put, type_get, type_valid;
  logic [Types-1:0][OutWidth-1:0] type_output;

  // State of the inputs: packets that wait in a queue, and which queue that is; the connection.
  logic [Inputs-1:0][HeldWidth-1:0] held_q;
  logic [Inputs-1:0][TypeWidth-1:0] held_type_q;
  logic [Inputs-1:0] in_connected_q;
  logic [Inputs-1:0][OutWidth-1:0] in_output_q;
  // State of the outputs.
  logic [Outputs-1:0] listed_q, out_connected_q;
  logic [Outputs-1:0][InWidth-1:0] out_input_q;
  logic [Outputs-1:0][LoadWidth-1:0] load_q;

  assign in_connected_o  = in_connected_q;
  assign in_output_o     = in_output_q;
  assign out_connected_o = out_connected_q;
  assign out_input_o     = out_input_q;

  // 1: register.
  logic [Inputs-1:0] may_register, asks, asks_q, registered;
  logic [InWidth-1:0] register_input;
  always_comb begin
    for (int unsigned i = 0; i < Inputs; i++) begin
      may_register[i] = frame_valid_i[i] &&
          (held_q[i] == '0 || (held_type_q[i] == frame_type_i[i] && held_q[i] != HeldWidth'(InFrames)));
    end
    asks = may_register & frame_turn_i;
  end
  rr_arbiter #(
    .Width(Inputs)
  ) u_register (
    .clk_i,
    .rst_ni,
    .request_i(asks_q),
    .take_i(1'b1),
    .grant_o(registered),
    .index_o(register_input)
  );
  assign frame_ready_o = registered;
  always_comb begin
    queue_put = '0;
    for (int unsigned i = 0; i < Inputs; i++) if (registered[i]) queue_put[frame_type_i[i]] = 1'b1;
  end

  // 2: connect.
  logic [Types-1:0] can_connect, can_connect_q;
  logic [Types-1:0][InWidth-1:0] queue_input_q;
  logic [Types-1:0][OutWidth-1:0] type_output_q;
  logic connect;
  logic [TypeWidth-1:0] connect_type;
  logic [InWidth-1:0] connect_input;
  logic [OutWidth-1:0] connect_output;
  logic [Outputs-1:0] out_done;
  always_comb begin
    for (int unsigned m = 0; m < Outputs; m++) out_done[m] = out_connected_q[m] && in_done_i[out_input_q[m]];
    for (int unsigned t = 0; t < Types; t++) begin
      can_connect[t] = queue_valid[t] && type_valid[t] && sent_ready_i &&
          (!in_connected_q[queue_input[t]] || in_done_i[queue_input[t]]) &&
          (!out_connected_q[type_output[t]] || out_done[type_output[t]]);
    end
  end
  rr_arbiter #(
    .Width(Types)
  ) u_connect (
    .clk_i,
    .rst_ni,
    .request_i(can_connect_q),
    .take_i(1'b1),
    .grant_o(queue_get),
    .index_o(connect_type)
  );
  assign type_get       = queue_get;
  assign connect        = |queue_get;
  assign connect_input  = queue_input_q[connect_type];
  assign connect_output = type_output_q[connect_type];
  always_ff @(posedge clk_i) begin
    queue_input_q <= queue_input;
    type_output_q <= type_output;
  end
  assign sent_valid_o   = connect;
  assign sent_output_o  = connect_output;

  // 3: list.
  logic [Outputs-1:0] can_list, can_list_q, list;
  logic [OutWidth-1:0] list_output;
  always_comb begin
    for (int unsigned m = 0; m < Outputs; m++)
      can_list[m] = !out_busy_i[m] && !listed_q[m] && load_q[m] != LoadWidth'(OutFrames);
  end
  rr_arbiter #(
    .Width(Outputs)
  ) u_list (
    .clk_i,
    .rst_ni,
    .request_i(can_list_q),
    .take_i(1'b1),
    .grant_o(list),
    .index_o(list_output)
  );
  always_comb begin
    type_put = '0;
    for (int unsigned m = 0; m < Outputs; m++) if (list[m]) type_put[out_type_i[m]] = 1'b1;
  end

  // Neither set can overflow: an input has at most InFrames packets in queues, an output stands in one list once.
  for (genvar t = 0; t < Types; t++) begin : gen_type
    logic [$clog2(QueueDepth+1)-1:0] queue_count;
    logic [$clog2(TypeDepth+1)-1:0] type_count;
    small_fifo #(
      .Width(InWidth),
      .Depth(QueueDepth),
      .NeverFull(1'b1)
    ) u_queue (
      .clk_i,
      .rst_ni,
      .valid_i(queue_put[t]),
      .ready_o(),
      .data_i (register_input),
      .valid_o(queue_valid[t]),
      .ready_i(queue_get[t]),
      .data_o (queue_input[t]),
      .count_o(queue_count)
    );
    small_fifo #(
      .Width(OutWidth),
      .Depth(TypeDepth),
      .NeverFull(1'b1)
    ) u_type (
      .clk_i,
      .rst_ni,
      .valid_i(type_put[t]),
      .ready_o(),
      .data_i (list_output),
      .valid_o(type_valid[t]),
      .ready_i(type_get[t]),
      .data_o (type_output[t]),
      .count_o(type_count)
    );
    logic unused;
    assign unused = &{queue_count, type_count};
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      asks_q          <= '0;
      can_connect_q   <= '0;
      can_list_q      <= '0;
      held_q          <= '0;
      held_type_q     <= '0;
      in_connected_q  <= '0;
      in_output_q     <= '0;
      listed_q        <= '0;
      out_connected_q <= '0;
      out_input_q     <= '0;
      load_q          <= '0;
    end else begin
      asks_q        <= asks & ~registered;
      can_connect_q <= can_connect & ~queue_get;
      can_list_q    <= can_list & ~list;
      for (int unsigned i = 0; i < Inputs; i++) begin
        held_q[i] <= held_q[i] + HeldWidth'(registered[i]) - HeldWidth'(connect && connect_input == InWidth'(i));
        if (registered[i]) held_type_q[i] <= frame_type_i[i];
        if (connect && connect_input == InWidth'(i)) begin
          in_connected_q[i] <= 1'b1;
          in_output_q[i]    <= connect_output;
        end else if (in_done_i[i]) begin
          in_connected_q[i] <= 1'b0;
        end
      end
      for (int unsigned m = 0; m < Outputs; m++) begin
        load_q[m] <= load_q[m] + LoadWidth'(connect && connect_output == OutWidth'(m)) - LoadWidth'(out_left_i[m]);
        if (list[m]) listed_q[m] <= 1'b1;
        if (connect && connect_output == OutWidth'(m)) begin
          listed_q[m]        <= 1'b0;
          out_connected_q[m] <= 1'b1;
          out_input_q[m]     <= connect_input;
        end else if (out_done[m]) begin
          out_connected_q[m] <= 1'b0;
        end
      end
    end
  end
endmodule
