// How ace_unpack ends with a file.
package ace_unpack_pkg;
  typedef enum logic [2:0] {
    Fine     = 3'd0,
    Format   = 3'd1,  // the header is not of the format
    Length   = 3'd2,  // the file has another length than its header asks for
    TooLarge = 3'd3,  // it does not fit into the memories
    Codeword = 3'd4,  // a codeword names a phrase that is not in the dictionary
    Link     = 3'd5,  // a phrase goes on with one that comes later
    Short    = 3'd6,  // a part gives fewer symbols than the header says
    Long     = 3'd7   // a part gives more symbols
  } outcome_e;
endpackage
