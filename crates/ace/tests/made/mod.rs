//! Bitstreams for tests, written command by command as Project Trellis does.

pub const FRAMES: usize = 7562;
pub const FRAME_LEN: usize = 74;

/// What goes into a bitstream.
pub struct Made {
    text: String,
    idcode: u32,
    frame_len: usize,
    pub control: u32,
    pub frames: Vec<u8>,
    /// A block RAM for each, filled with the byte.
    pub blocks: Vec<u8>,
}

impl Made {
    /// For the LFE5U-25F.
    pub fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            idcode: 0x4111_1043,
            frame_len: FRAME_LEN,
            control: 0x4000_0000,
            frames: vec![0; FRAMES * FRAME_LEN],
            blocks: Vec::new(),
        }
    }

    /// For the LFE5U-45F, configured anew while it runs.
    #[allow(dead_code, reason = "not all tests need it")]
    pub fn background(text: &str) -> Self {
        Self {
            idcode: 0x4111_2043,
            frame_len: 106,
            control: 0x6e00_0000,
            frames: vec![0; 9470 * 106],
            ..Self::new(text)
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Writer {
            bytes: vec![0xff, 0],
            crc: 0,
        };
        out.bytes.extend_from_slice(self.text.as_bytes());
        out.bytes
            .extend_from_slice(&[0, 0xff, 0xff, 0xff, 0xbd, 0xb3, 0xff, 0xff, 0xff, 0xff]);
        out.write(&[0x3b, 0, 0, 0]);
        out.crc = 0;
        out.write(&[0xe2, 0, 0, 0]);
        out.write(&self.idcode.to_be_bytes());
        out.write(&[0x22, 0, 0, 0]);
        out.write(&self.control.to_be_bytes());
        out.write(&[0x46, 0, 0, 0]);
        out.write(&[0x82, 0x91]);
        out.write(&((self.frames.len() / self.frame_len) as u16).to_be_bytes());
        for frame in self.frames.chunks(self.frame_len) {
            out.write(frame);
            out.checksum();
            out.write(&[0xff]);
        }
        out.bytes.extend_from_slice(&[0xff; 12]);
        out.write(&[0xc2, 0x80, 0, 0, 0, 0, 0, 0]);
        out.checksum();
        for (number, &block) in (0u8..).zip(&self.blocks) {
            out.write(&[0xf6, 0, 0, 0, 0, 0, number << 3, 0]);
            out.write(&[0xb2, 0xd0, 1, 0]);
            out.write(&[block; 256 * 9]);
            out.checksum();
        }
        out.write(&[0x5e, 0, 0, 0]);
        out.bytes.extend_from_slice(&[0xff; 4]);
        out.bytes
    }
}

struct Writer {
    bytes: Vec<u8>,
    crc: u16,
}

impl Writer {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.bytes.push(byte);
            (0..8)
                .rev()
                .for_each(|bit| self.shift(u16::from(byte >> bit & 1)));
        }
    }

    /// One bit goes through the checksum, bit by bit and without a table.
    fn shift(&mut self, bit: u16) {
        let out = self.crc >> 15;
        self.crc = (self.crc << 1 | bit) ^ (out * 0x8005);
    }

    fn checksum(&mut self) {
        (0..16).for_each(|_| self.shift(0));
        let crc = std::mem::take(&mut self.crc);
        self.bytes.extend_from_slice(&crc.to_be_bytes());
    }
}
