// Proof of switch_control.
//
// Safety, by induction: a packet that was announced is connected exactly once, to an output of its type, after those of
// its input that came before it; connections are one to one; no FIFO of the two sets overflows; an output never gets more
// packets than it has room for. Liveness, by induction too: each of the three machines serves whoever waits for it within
// a bounded number of cycles. So with units that finish and inputs that deliver, nothing waits for ever.
module switch_control_proof #(
  parameter int unsigned Inputs    = 2,
  parameter int unsigned Outputs   = 3,
  parameter int unsigned Types     = 2,
  parameter int unsigned InFrames  = 2,
  parameter int unsigned OutFrames = 1
) (
  input logic                    clk_i,
  input logic [      Inputs-1:0] frame_valid_i,
  input logic [      Inputs-1:0] frame_type_i,
  input logic [      Inputs-1:0] frame_turn_i,
  input logic [      Inputs-1:0] in_done_i,
  input logic [     Outputs-1:0] out_busy_i,
  input logic [     Outputs-1:0] out_type_i,
  input logic [     Outputs-1:0] out_left_i,
  input logic                    sent_ready_i,
  input logic                    follow_i,        // picks the packet that is followed, of input 0
  input logic [             1:0] some_output_i    // an output that liveness is shown for
);
  localparam int unsigned OutWidth = $clog2(Outputs);
  localparam int unsigned QueueDepth = Inputs * InFrames;
  localparam int unsigned TypeDepth = 4;

  logic rst_nq = 1'b0;
  always_ff @(posedge clk_i) rst_nq <= 1'b1;

  logic [Inputs-1:0] frame_ready, in_connected;
  logic [Inputs-1:0][OutWidth-1:0] in_output;
  logic [Outputs-1:0] out_connected;
  logic [Outputs-1:0] out_input;
  logic [Outputs-1:0] out_type_q;
  logic sent_valid;
  logic [OutWidth-1:0] sent_output;

  switch_control #(
    .Inputs(Inputs),
    .Outputs(Outputs),
    .Types(Types),
    .InFrames(InFrames),
    .OutFrames(OutFrames)
  ) u_control (
    .clk_i,
    .rst_ni(rst_nq),
    .frame_valid_i,
    .frame_type_i,
    .frame_ready_o(frame_ready),
    .frame_turn_i,
    .in_connected_o(in_connected),
    .in_output_o(in_output),
    .out_connected_o(out_connected),
    .out_input_o(out_input),
    .in_done_i,
    .out_busy_i,
    .out_type_i(out_type_q),
    .out_left_i,
    .sent_valid_o(sent_valid),
    .sent_output_o(sent_output),
    .sent_ready_i
  );

  always_ff @(posedge clk_i) if (!rst_nq) out_type_q <= out_type_i;

  // How often each number lies in each FIFO of the sets.
  logic [Types-1:0][Inputs-1:0][3:0] waits;
  logic [Types-1:0][Outputs-1:0][2:0] lists;
  for (genvar t = 0; t < Types; t++) begin : gen_count
    always_comb begin
      waits[t] = '0;
      for (int unsigned k = 0; k < QueueDepth; k++) begin
        automatic int unsigned slot = (32'(u_control.gen_type[t].u_queue.head_q) + k) % QueueDepth;
        if (k < 32'(u_control.gen_type[t].u_queue.count_q)) waits[t][u_control.gen_type[t].u_queue.mem[slot]] += 1'b1;
      end
      lists[t] = '0;
      for (int unsigned k = 0; k < TypeDepth; k++) begin
        automatic int unsigned slot = (32'(u_control.gen_type[t].u_type.head_q) + k) % TypeDepth;
        for (int unsigned m = 0; m < Outputs; m++)
          if (k < 32'(u_control.gen_type[t].u_type.count_q) &&
              u_control.gen_type[t].u_type.mem[slot] == OutWidth'(m)) lists[t][m] += 1'b1;
      end
    end
    always_ff @(posedge clk_i) if (rst_nq) begin
      assert (u_control.gen_type[t].u_queue.count_q <= QueueDepth);
      assert (u_control.gen_type[t].u_type.count_q <= TypeDepth);
      assert (u_control.gen_type[t].u_queue.tail_q ==
              u_control.gen_type[t].u_queue.head_q + 2'(u_control.gen_type[t].u_queue.count_q));
      assert (u_control.gen_type[t].u_type.tail_q ==
              u_control.gen_type[t].u_type.head_q + 2'(u_control.gen_type[t].u_type.count_q));
      assert (!u_control.queue_put[t] || u_control.gen_type[t].u_queue.ready_o);
      assert (!u_control.type_put[t] || u_control.gen_type[t].u_type.ready_o);
      // Entries are numbers of outputs.
      for (int unsigned k = 0; k < TypeDepth; k++) begin
        automatic int unsigned slot = (32'(u_control.gen_type[t].u_type.head_q) + k) % TypeDepth;
        if (k < 32'(u_control.gen_type[t].u_type.count_q))
          assert (u_control.gen_type[t].u_type.mem[slot] < OutWidth'(Outputs));
      end
    end
  end

  // What the surroundings do: only a connected input delivers, only packets that are there leave.
  logic [Outputs-1:0][1:0] inside_q = '0;  // whole packets in the output's FIFO
  logic [Outputs-1:0] done;
  logic [Inputs-1:0] stays_q = '0, turn_q = '0, type_seen_q = '0;
  always_comb
    for (int unsigned m = 0; m < Outputs; m++) done[m] = out_connected[m] && in_done_i[out_input[m]];
  always_ff @(posedge clk_i) begin
    assume ((in_done_i & ~in_connected) == '0);
    // Who is announced and may be registered stays so until it is.
    stays_q <= rst_nq ? frame_valid_i & ~frame_ready : '0;
    turn_q  <= rst_nq ? frame_valid_i & frame_turn_i & ~frame_ready : '0;
    type_seen_q <= frame_type_i;
    assume ((stays_q & ~frame_valid_i) == '0 && (turn_q & ~frame_turn_i) == '0);
    assume ((stays_q & (frame_type_i ^ type_seen_q)) == '0);
    for (int unsigned m = 0; m < Outputs; m++) begin
      assume (!out_left_i[m] || inside_q[m] != '0 || done[m]);
      if (rst_nq) inside_q[m] <= inside_q[m] + 2'(done[m]) - 2'(out_left_i[m]);
    end
  end

  // The followed packet of input 0: the packets of its input that are to be connected before it.
  logic waiting_q = 1'b0, connected_q = 1'b0;
  logic type_q;
  logic [2:0] ahead_q;
  logic connect_0;
  assign connect_0 = u_control.connect && u_control.connect_input == '0;
  always_ff @(posedge clk_i) if (rst_nq) begin
    if (frame_ready[0] && follow_i && !waiting_q && !connected_q) begin
      waiting_q <= 1'b1;
      type_q    <= frame_type_i[0];
      ahead_q   <= 3'(u_control.held_q[0]) - 3'(connect_0);
    end else if (waiting_q && connect_0) begin
      waiting_q   <= ahead_q != '0;
      connected_q <= ahead_q == '0;
      ahead_q     <= ahead_q - 1'b1;
    end
  end

  always_ff @(posedge clk_i) if (rst_nq) begin
    assert ((frame_ready & ~(frame_valid_i & frame_turn_i)) == '0);
    assert ((frame_ready & (frame_ready - 1'b1)) == '0);
    // Who could be served a cycle ago still can.
    assert ((u_control.asks_q & ~turn_q) == '0 && (u_control.asks_q & ~u_control.asks) == '0);
    for (int unsigned m = 0; m < Outputs; m++)
      if (u_control.can_list_q[m]) assert (!u_control.listed_q[m] && 32'(u_control.load_q[m]) < OutFrames);
    for (int unsigned t = 0; t < Types; t++) begin
      if (u_control.can_connect_q[t]) begin
        assert (u_control.queue_valid[t] && u_control.type_valid[t]);
        assert (u_control.queue_input_q[t] == u_control.queue_input[t]);
        assert (u_control.type_output_q[t] == u_control.type_output[t]);
        assert (!in_connected[u_control.queue_input[t]] && !out_connected[u_control.type_output[t]]);
      end
    end
    for (int unsigned i = 0; i < Inputs; i++) begin
      // No loss, no duplication: what was registered and not yet connected lies in one queue, once each.
      assert (waits[u_control.held_type_q[i]][i] == 4'(u_control.held_q[i]));
      assert (waits[~u_control.held_type_q[i]][i] == '0);
      assert (u_control.held_q[i] <= InFrames);
      // One to one.
      if (in_connected[i]) begin
        assert (in_output[i] < OutWidth'(Outputs));
        assert (out_connected[in_output[i]] && 32'(out_input[in_output[i]]) == i);
      end
    end
    for (int unsigned m = 0; m < Outputs; m++) begin
      assert (lists[out_type_q[m]][m] == 3'(u_control.listed_q[m]));
      assert (lists[~out_type_q[m]][m] == '0);
      if (out_connected[m]) assert (in_connected[out_input[m]] && 32'(in_output[out_input[m]]) == m);
      // Room: a packet on its way or inside for each that was connected.
      assert (32'(u_control.load_q[m]) == 32'(inside_q[m]) + 32'(out_connected[m]));
      assert (32'(u_control.load_q[m]) + 32'(u_control.listed_q[m]) <= OutFrames);
    end
    if (waiting_q) begin
      assert (!connected_q);
      assert (ahead_q < 3'(u_control.held_q[0]));
      assert (u_control.held_type_q[0] == type_q);
      if (connect_0) assert (out_type_q[u_control.connect_output] == type_q);
    end
    cover (connected_q && in_connected == '1);
  end

  // Nobody waits for ever: cycles for which the last input could have been registered, some output listed, the last type
  // connected. Those in front of them are not preferred.
  logic [3:0] register_wait_q = '0, list_wait_q = '0, connect_wait_q = '0;
  logic [1:0] some_q;
  logic can_register, can_list, can_connect;
  assign can_register = u_control.asks[Inputs-1];
  assign can_list     = u_control.can_list[some_q];
  assign can_connect  = u_control.can_connect[Types-1];
  always_ff @(posedge clk_i) begin
    some_q <= rst_nq ? some_q : some_output_i;
    if (!rst_nq) assume (some_output_i < 2'(Outputs));
    if (rst_nq) begin
      register_wait_q <= can_register && !frame_ready[Inputs-1] ? register_wait_q + 1'b1 : '0;
      list_wait_q     <= can_list && !u_control.list[some_q] ? list_wait_q + 1'b1 : '0;
      connect_wait_q  <= can_connect && !u_control.queue_get[Types-1] ? connect_wait_q + 1'b1 : '0;
      assert (some_q < 2'(Outputs));
      assert (register_wait_q <= Inputs);
      assert (list_wait_q <= Outputs);
      assert (connect_wait_q <= Types);
      // Never stuck: what keeps a type from being connected is an input or an output that is still at work, or nobody waits.
      for (int unsigned t = 0; t < Types; t++)
        if (u_control.queue_valid[t] && u_control.type_valid[t] && sent_ready_i && !u_control.can_connect[t])
          assert (in_connected[u_control.queue_input[t]] || out_connected[u_control.type_output[t]]);
      // A packet is refused only where its input's packets ahead wait in a queue.
      for (int unsigned i = 0; i < Inputs; i++)
        if (frame_valid_i[i] && !u_control.may_register[i]) assert (u_control.held_q[i] != '0);
      // An output is not listed only if it is busy or has its packets.
      for (int unsigned m = 0; m < Outputs; m++)
        if (!u_control.listed_q[m] && !u_control.can_list[m])
          assert (out_busy_i[m] || inside_q[m] != '0 || out_connected[m]);
    end
  end
endmodule
