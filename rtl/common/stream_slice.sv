// A register between two handshakes that cuts both ways: no path leads from one side's valid, data or ready to the other's.
//
// Two words fit in. With OutputRegister data_o comes from a register, and ready_i leads to all its bits; without it two
// registers are filled and emptied in turn, and ready_i leads to none of them.
module stream_slice #(
  parameter int unsigned Width = 32,
  parameter bit OutputRegister = 1'b0
) (
  input  logic             clk_i,
  input  logic             rst_ni,
  input  logic             valid_i,
  output logic             ready_o,
  input  logic [Width-1:0] data_i,
  output logic             valid_o,
  input  logic             ready_i,
  output logic [Width-1:0] data_o
);
  logic full_q, some_q, put, get;
  assign ready_o = !full_q;
  assign valid_o = some_q;
  assign put     = valid_i && ready_o;
  assign get     = valid_o && ready_i;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      full_q <= 1'b0;
      some_q <= 1'b0;
    end else begin
      full_q <= !get && (full_q || (put && some_q));
      some_q <= put || full_q || (some_q && !get);
    end
  end

  if (OutputRegister) begin : g_register
    logic [Width-1:0] spare_q;
    always_ff @(posedge clk_i) begin
      if (!some_q || ready_i) data_o <= full_q ? spare_q : data_i;
      if (!full_q) spare_q <= data_i;
    end
  end else begin : g_turns
    logic write_q, read_q;
    logic [Width-1:0] even_q, odd_q;
    assign data_o = read_q ? odd_q : even_q;
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        write_q <= 1'b0;
        read_q  <= 1'b0;
      end else begin
        if (put) write_q <= !write_q;
        if (get) read_q <= !read_q;
      end
    end
    // The next one to be filled is free unless both are full.
    always_ff @(posedge clk_i) begin
      if (!full_q && !write_q) even_q <= data_i;
      if (!full_q && write_q) odd_q <= data_i;
    end
  end
endmodule
