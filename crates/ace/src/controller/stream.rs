//! The bytes of a load: a whole bitstream as it is merged, or only the frames that differ from the lane before.

use crate::fabric::{Fabric, FabricError};
use crate::frames::{Configuration, Merge, Partial, Reader};

/// Bytes that are made at once. Batches wait for no more than that.
const PIECE: usize = 16 << 10;

/// The bytes of a load.
#[derive(Debug)]
pub(super) struct LoadStream<'a> {
    source: Source<'a>,
    /// The bitstream from its beginning.
    whole: Merge<'a>,
    /// Reads what is merged, where it is compared or remembered.
    reader: Option<Reader>,
    /// Bytes that were merged.
    merged: usize,
    piece: Vec<u8>,
    /// Bytes of the piece that the fabric has taken, and bytes before the piece.
    taken: usize,
    before: usize,
    /// There is no piece after this one.
    is_last: bool,
}

#[derive(Debug)]
enum Source<'a> {
    Whole(Merge<'a>),
    /// The bitstream is merged to be compared with what is there.
    Compared(Merge<'a>, Configuration),
    Partial(Partial),
}

/// The next step of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadProgress {
    /// Bytes are there for the fabric, or more can be made at once.
    Goes,
    /// The fabric has taken as much as it can for now.
    Waits,
    /// The fabric has everything.
    Ended,
}

impl<'a> LoadStream<'a> {
    /// Begins a load. `takes_partial` is whether partial streams may follow this load, and `former` what the fabric has,
    /// if it is to be compared. The lane forgets its key before anything of it is overwritten.
    pub fn begin<F: Fabric>(
        fabric: &mut F,
        whole: Merge<'a>,
        takes_partial: bool,
        former: Option<Configuration>,
    ) -> Result<Self, FabricError> {
        let source = match former {
            Some(former) => {
                fabric.wipe()?;
                Source::Compared(whole.clone(), former)
            }
            None => {
                fabric.begin()?;
                Source::Whole(whole.clone())
            }
        };
        Ok(Self {
            source,
            whole,
            reader: takes_partial.then(Reader::whole),
            merged: 0,
            piece: Vec::with_capacity(PIECE),
            taken: 0,
            before: 0,
            is_last: false,
        })
    }

    /// True if the piece has gone to the fabric, so that the next is to be made.
    pub fn wants_piece(&self) -> bool {
        self.taken == self.piece.len() && !self.is_last
    }

    /// True if only what differs goes to the fabric.
    pub fn is_partial(&self) -> bool {
        matches!(self.source, Source::Partial(_))
    }

    /// Bytes that the fabric has taken.
    pub fn bytes(&self) -> usize {
        self.before + self.taken
    }

    /// Makes the next piece.
    pub fn next_piece<F: Fabric>(&mut self, fabric: &mut F) -> Result<(), String> {
        self.before += self.taken;
        self.taken = 0;
        self.piece.clear();
        let merge = match &mut self.source {
            Source::Whole(merge) | Source::Compared(merge, _) => merge,
            Source::Partial(partial) => {
                self.is_last = !partial.fill(&mut self.piece, PIECE);
                return Ok(());
            }
        };
        self.piece.resize(PIECE, 0);
        let merged = merge.read(&mut self.piece);
        let merged = merged.map_err(|error| error.to_string())?;
        self.piece.truncate(merged);
        self.merged += merged;
        if let Some(reader) = &mut self.reader {
            reader
                .take(&self.piece)
                .map_err(|(at, error)| format!("merged bitstream, byte {at}: {error}"))?;
        }
        let is_merged = merged < PIECE;
        if !matches!(self.source, Source::Compared(..)) {
            self.is_last = is_merged;
            return Ok(());
        }
        self.piece.clear();
        match is_merged {
            true => self.choose(fabric).map_err(|error| error.to_string()),
            false => Ok(()),
        }
    }

    /// Has merged and compared. The partial stream is taken if it is shorter.
    fn choose<F: Fabric>(&mut self, fabric: &mut F) -> Result<(), FabricError> {
        let reader = self.reader.replace(Reader::whole());
        let wanted = reader.and_then(|reader| reader.finish().ok());
        let partial = match (&self.source, wanted) {
            (Source::Compared(_, former), Some(wanted)) => Partial::new(former, wanted).ok(),
            _ => None,
        };
        let partial = partial.filter(|partial| partial.total_len() < self.merged);
        // A fabric that refuses to begin gets the whole bitstream.
        match partial.filter(|_| fabric.begin_partial().is_ok()) {
            Some(partial) => self.source = Source::Partial(partial),
            None => {
                fabric.begin()?;
                self.source = Source::Whole(self.whole.clone());
            }
        }
        Ok(())
    }

    /// Gives bytes to the fabric.
    pub fn give<F: Fabric>(&mut self, fabric: &mut F) -> Result<LoadProgress, FabricError> {
        let rest = self.piece.get(self.taken..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(if self.is_last {
                LoadProgress::Ended
            } else {
                LoadProgress::Goes
            });
        }
        let taken = fabric.configure(rest)?;
        self.taken += taken;
        Ok(match self.taken < self.piece.len() {
            true if taken == 0 => LoadProgress::Waits,
            false if self.is_last => LoadProgress::Ended,
            _ => LoadProgress::Goes,
        })
    }

    /// The fabric's configuration after the load, if it is remembered.
    pub fn into_configuration(self) -> Option<Configuration> {
        match self.source {
            Source::Partial(partial) => Some(partial.into_wanted()),
            _ => self.reader?.into_configuration().ok(),
        }
    }
}
