// Two streams of frames become one, a frame at a time; where both have one they take turns. Says when a frame left and
// how long it was.
module frame_merge (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic          [1:0] valid_i,
  output logic          [1:0] ready_o,
  input  esp_pkg::beat_t [1:0] beat_i,
  input  esp_pkg::user_t [1:0] user_i,
  output logic                valid_o,
  input  logic                ready_i,
  output esp_pkg::beat_t      beat_o,
  output esp_pkg::user_t      user_o,
  output logic                left_o,
  output logic         [15:0] left_bytes_o
);
  import esp_pkg::*;

  logic inside_q, turn_q, pick, move;
  assign move = !valid_o || ready_i;
  assign pick = inside_q ? turn_q : valid_i[~turn_q] ? ~turn_q : turn_q;

  always_comb begin
    ready_o       = '0;
    ready_o[pick] = move;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      inside_q <= 1'b0;
      turn_q   <= 1'b0;
      valid_o  <= 1'b0;
    end else if (move) begin
      valid_o <= valid_i[pick];
      if (valid_i[pick]) begin
        turn_q   <= pick;
        inside_q <= !beat_i[pick].last;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (move) begin
      beat_o <= beat_i[pick];
      user_o <= user_i[pick];
    end
  end

  // Whole words but in the last beat.
  logic [15:0] bytes_q;
  logic        first_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      first_q <= 1'b1;
      left_o  <= 1'b0;
    end else begin
      if (valid_o && ready_i) first_q <= beat_o.last;
      left_o <= valid_o && ready_i && beat_o.last;
    end
  end
  always_ff @(posedge clk_i) begin
    if (valid_o && ready_i) bytes_q <= (first_q ? '0 : bytes_q) + 16'($countones(beat_o.keep));
  end
  assign left_bytes_o = bytes_q;
endmodule
