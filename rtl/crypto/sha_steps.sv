// The steps of sha1_core and sha256_core, which do two rounds each, and the handshakes of both.
//
// From FirstLoad on the words of the next block enter, while the last rounds of the block before are done. The step Hold
// takes the last of them. A block that starts a message waits there until the block before has had its step Last.
module sha_steps #(
  parameter logic [5:0] FirstLoad = 6'd30,
  parameter logic [5:0] Hold      = 6'd37,
  parameter logic [5:0] Last      = 6'd39
) (
  input  logic       clk_i,
  input  logic       rst_ni,
  input  logic       valid_i,  // a whole block can be fetched
  output logic       ready_o,  // it has been
  output logic [2:0] index_o,  // the pair of words wanted now
  input  logic       last_i,   // the block ends its message
  output logic       valid_o,  // a message's hash is there, in this cycle only
  output logic [5:0] step_o,
  output logic       busy_o,   // the rounds are a block's; else only words and chaining value enter
  output logic       last_o,   // that block ends its message
  output logic       go_o,     // this cycle counts
  output logic       hold_o    // the block that enters waits
);
  logic [5:0] step_q, step_d;
  logic busy_q, busy_d;
  logic load_q, load;  // a block is entering
  logic last_q, next_last_q;
  logic fresh;         // the block that enters starts a message
  logic go, hold, first_load, last_step;

  assign first_load = step_q == FirstLoad;
  assign last_step  = step_q == Last;
  assign load       = first_load ? valid_i : load_q;
  assign fresh      = !busy_q || last_q;
  // Waits for the next block of a message, or for any.
  assign go         = !first_load || valid_i || (busy_q && last_q);
  assign hold       = busy_q && fresh && step_q >= Hold;
  assign ready_o    = load && step_q == Hold && !hold;
  assign index_o    = 3'(step_q - FirstLoad);
  assign step_o     = step_q;
  assign busy_o     = busy_q;
  assign last_o     = last_q;
  assign go_o       = go;
  assign hold_o     = hold;

  always_comb begin
    step_d = step_q + 6'd1;
    busy_d = busy_q;
    if (last_step) begin
      step_d = !load ? FirstLoad : hold ? Hold : '0;
      busy_d = load && !hold;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      step_q  <= FirstLoad;
      busy_q  <= 1'b0;
      load_q  <= 1'b0;
      valid_o <= 1'b0;
    end else begin
      valid_o <= last_step && busy_q && last_q;
      if (go) begin
        step_q <= step_d;
        busy_q <= busy_d;
        load_q <= load && !(last_step && !hold);
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (ready_o) next_last_q <= last_i;
    if (last_step) last_q <= next_last_q;
  end
endmodule
