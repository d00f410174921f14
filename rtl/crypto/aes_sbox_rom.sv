// SubBytes of two bytes from one dual-port block ROM, one cycle, or two with the memory's output register.
module aes_sbox_rom
  import aes_pkg::*;
#(
  parameter bit OutputRegister = 1'b1
) (
  input  logic  clk_i,
  input  byte_t a_i,
  input  byte_t b_i,
  output byte_t a_o,
  output byte_t b_o
);
  // The contents of a memory can only be given so.
  (* rom_style = "block" *) byte_t rom[256];
  initial for (int unsigned i = 0; i < 256; i++) rom[i] = Sbox[i];

  byte_t a_q, b_q;
  always_ff @(posedge clk_i) begin
    a_q <= rom[a_i];
    b_q <= rom[b_i];
  end

  if (OutputRegister) begin : g_register
    always_ff @(posedge clk_i) begin
      a_o <= a_q;
      b_o <= b_q;
    end
  end else begin : g_none
    assign a_o = a_q;
    assign b_o = b_q;
  end
endmodule
