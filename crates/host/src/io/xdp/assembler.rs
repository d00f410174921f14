//! Assembles instructions of the kernel's virtual machine (RFC 9669). It knows only those that
//! `program` needs.

/// The layout of `struct bpf_insn`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BpfInstruction {
    code: u8,
    /// The destination register in the low half, and the source register in the high half.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Opcodes of the instructions.
pub mod code {
    pub const LOAD_IMMEDIATE: u8 = 0x18;
    pub const LOAD: [u8; 4] = [0x71, 0x69, 0x61, 0x79];
    pub const STORE: [u8; 4] = [0x73, 0x6b, 0x63, 0x7b];
    pub const STORE_IMMEDIATE: [u8; 4] = [0x72, 0x6a, 0x62, 0x7a];
    pub const MOVE: u8 = 0xbf;
    pub const MOVE_IMMEDIATE: u8 = 0xb7;
    pub const ADD_IMMEDIATE: u8 = 0x07;
    pub const AND_IMMEDIATE: u8 = 0x57;
    pub const JUMP: u8 = 0x05;
    pub const JUMP_EQUAL: u8 = 0x15;
    pub const JUMP_UNEQUAL: u8 = 0x55;
    pub const JUMP_ABOVE: u8 = 0x2d;
    pub const CALL: u8 = 0x85;
    pub const EXIT: u8 = 0x95;
}

/// Width of a load or store, as an index into its opcodes.
pub const BYTE: usize = 0;
pub const HALF: usize = 1;
pub const WORD: usize = 2;
pub const DOUBLE: usize = 3;

/// A label in the program, as the target of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    V4,
    LookUp,
    Take,
    Pass,
}

#[derive(Debug, Default)]
pub struct Assembler {
    instructions: Vec<BpfInstruction>,
    places: Vec<(Label, usize)>,
    jumps: Vec<(Label, usize)>,
}

impl Assembler {
    pub fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.instructions.push(BpfInstruction {
            code,
            registers: from << 4 | to,
            offset,
            immediate,
        });
    }

    pub fn load(&mut self, size: usize, to: u8, from: u8, offset: i16) {
        self.put(code::LOAD[size], to, from, offset, 0);
    }

    pub fn store(&mut self, size: usize, to: u8, offset: i16, from: u8) {
        self.put(code::STORE[size], to, from, offset, 0);
    }

    pub fn store_number(&mut self, size: usize, to: u8, offset: i16, number: i32) {
        self.put(code::STORE_IMMEDIATE[size], to, 0, offset, number);
    }

    pub fn copy(&mut self, to: u8, from: u8) {
        self.put(code::MOVE, to, from, 0, 0);
    }

    pub fn set(&mut self, to: u8, number: i32) {
        self.put(code::MOVE_IMMEDIATE, to, 0, 0, number);
    }

    pub fn add(&mut self, to: u8, number: i32) {
        self.put(code::ADD_IMMEDIATE, to, 0, 0, number);
    }

    pub fn jump(&mut self, code: u8, a: u8, b: u8, number: i32, place: Label) {
        self.jumps.push((place, self.instructions.len()));
        self.put(code, a, b, 0, number);
    }

    pub fn call(&mut self, helper: i32) {
        self.put(code::CALL, 0, 0, 0, helper);
    }

    pub fn exit(&mut self) {
        self.put(code::EXIT, 0, 0, 0, 0);
    }

    pub fn here(&mut self, place: Label) {
        self.places.push((place, self.instructions.len()));
    }

    pub fn finish(mut self) -> Vec<BpfInstruction> {
        for (place, from) in self.jumps {
            let to = self.places.iter().find(|(known, _)| *known == place);
            let distance = to.map_or(0, |(_, to)| *to as i16 - from as i16 - 1);
            self.instructions[from].offset = distance;
        }
        self.instructions
    }
}
