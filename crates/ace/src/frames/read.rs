//! Reads bitstreams and partial streams as they come, piece by piece.

use super::bitstream::{BITSTREAM_LEN_MAX, Bitstream, Block, Configuration};
use super::walker::{BitstreamError, Expected, Walker};

/// Takes the bytes of a bitstream, or of a partial stream, and checks each as it comes.
#[derive(Debug)]
pub struct Reader {
    walker: Walker,
    /// The checksum that is wanted, and the first byte of the one that is there.
    checksum: Option<(u16, u8)>,
    taken: usize,
    envelope: Vec<u8>,
    /// All frames of a bitstream; the one frame that is coming of a partial stream.
    frames: Vec<u8>,
    blocks: Vec<Block>,
    /// True while the last of the blocks is still coming.
    in_block: bool,
    /// The configuration that a partial stream changes.
    former: Option<Former>,
}

#[derive(Debug)]
struct Former {
    configuration: Configuration,
    /// The frames that came.
    came: Vec<bool>,
}

impl Reader {
    /// Reads a whole bitstream.
    pub fn whole() -> Self {
        Self {
            walker: Walker::default(),
            checksum: None,
            taken: 0,
            envelope: Vec::new(),
            frames: Vec::new(),
            blocks: Vec::new(),
            in_block: false,
            former: None,
        }
    }

    /// Reads a partial stream, which goes onto a part that has been loaded.
    pub fn partial(former: Configuration) -> Self {
        let came = vec![false; usize::from(former.part.frames)];
        Self {
            walker: Walker::partial(),
            former: Some(Former {
                configuration: former,
                came,
            }),
            ..Self::whole()
        }
    }

    /// Takes the next bytes. An error comes with the offset of the byte that is wrong.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), (usize, BitstreamError)> {
        for &byte in bytes {
            self.take_byte(byte).map_err(|error| match error {
                // It begins one byte before.
                BitstreamError::Checksum { .. } => (self.taken - 1, error),
                _ => (self.taken, error),
            })?;
            self.taken += 1;
        }
        Ok(())
    }

    fn take_byte(&mut self, byte: u8) -> Result<(), BitstreamError> {
        if let Some((wanted, first)) = self.checksum.take() {
            let found = u16::from_be_bytes([first, byte]);
            if found != wanted {
                return Err(BitstreamError::Checksum { wanted, found });
            }
            return Ok(());
        }
        if self.taken >= BITSTREAM_LEN_MAX {
            return Err(BitstreamError::Long);
        }
        match self.walker.expected() {
            Expected::Checksum => {
                self.end_of_frame()?;
                self.in_block = false;
                self.checksum = Some((self.walker.checksum(), byte));
                return Ok(());
            }
            Expected::Frame => self.frames.push(byte),
            Expected::Envelope => self.envelope.push(byte),
            Expected::Block => {
                self.envelope.push(byte);
                self.block_byte(byte);
            }
            Expected::Filler => (),
        }
        self.walker.take(byte)?;
        self.check_part()
    }

    fn block_byte(&mut self, byte: u8) {
        if !std::mem::replace(&mut self.in_block, true) {
            self.blocks.push(Block {
                address: self.walker.block(),
                content: Vec::new(),
            });
        }
        if let Some(block) = self.blocks.last_mut() {
            block.content.push(byte);
        }
    }

    /// Notes a frame of a partial stream. Its checksum is still to come; if that is wrong, nothing is used.
    fn end_of_frame(&mut self) -> Result<(), BitstreamError> {
        let Some(former) = &mut self.former else {
            return Ok(());
        };
        if self.frames.is_empty() {
            return Ok(());
        }
        let frame = self.walker.frame();
        let refused = BitstreamError::Frame(u32::from(frame));
        let came = former.came.get_mut(usize::from(frame)).ok_or(refused)?;
        if std::mem::replace(came, true) || !former.configuration.write_frame(frame, &self.frames) {
            return Err(refused);
        }
        self.frames.clear();
        Ok(())
    }

    fn check_part(&self) -> Result<(), BitstreamError> {
        match (&self.former, self.walker.part()) {
            (Some(former), Some(part)) if part != former.configuration.part => {
                Err(BitstreamError::Idcode(part.idcode))
            }
            _ => Ok(()),
        }
    }

    fn end(&self) -> Result<(), (usize, BitstreamError)> {
        match self.checksum {
            Some(_) => Err((self.taken - 1, BitstreamError::End)),
            None => self.walker.finish().map_err(|error| (self.taken, error)),
        }
    }

    /// Ends a whole bitstream.
    pub fn finish(self) -> Result<Bitstream, (usize, BitstreamError)> {
        self.end()?;
        let part = self.walker.part();
        let part = part.ok_or((self.taken, BitstreamError::NoPart))?;
        Ok(Bitstream {
            configuration: Configuration {
                part,
                control: self.walker.control(),
                frames: self.frames,
                blocks: self.blocks,
            },
            envelope: self.envelope,
        })
    }

    /// Ends whatever was read. Returns what the part has then.
    pub fn into_configuration(mut self) -> Result<Configuration, (usize, BitstreamError)> {
        let Some(former) = self.former.take() else {
            return self.finish().map(Bitstream::into_configuration);
        };
        self.end()?;
        let mut configuration = former.configuration;
        for block in self.blocks {
            configuration.write_block(block);
        }
        Ok(configuration)
    }
}

impl Bitstream {
    /// Reads a `.bit` file. An error comes with the offset of the byte that is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, (usize, BitstreamError)> {
        if bytes.len() > BITSTREAM_LEN_MAX {
            return Err((BITSTREAM_LEN_MAX, BitstreamError::Long));
        }
        let mut reader = Reader::whole();
        reader.take(bytes)?;
        reader.finish()
    }
}
