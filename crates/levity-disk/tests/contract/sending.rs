//! From what an engine hands over to a socket.

use crate::harness::for_every_engine;

for_every_engine![every_form_reaches_the_socket, a_full_socket_takes_part];

mod cases {
    use std::io::{self, Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use levity_disk::{Done, Ready, transmit};

    use crate::harness::*;

    fn pair() -> (UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (ours, theirs)
    }

    /// Sends what is left after the first `sent` bytes.
    fn send(mut socket: &UnixStream, ready: &Ready, sent: usize) -> io::Result<usize> {
        let left = ready.len() - sent;
        let fd = socket.as_fd();
        match ready {
            Ready::Bytes(buffer) => socket.write(&buffer[sent..]),
            Ready::Pipe { pipe, .. } => transmit::splice(pipe.as_fd(), fd, left),
            Ready::Shared { memory, offset, .. } => {
                transmit::send_shared(fd, memory, offset + sent as u64, left)
            }
            Ready::PageCache { file, offset, .. } => {
                transmit::sendfile(fd, file, offset + sent as u64, left)
            }
        }
    }

    pub fn every_form_reaches_the_socket(rig: &Rig) {
        let disk = rig.disk();
        rig.write("file", 1 << 20);
        let file = open(&disk, &rig.root(), "file");
        for round in 0..6 {
            let (ours, mut theirs) = pair();
            let offset = 1000 * round;
            let Done::Read(ready) = ask(&disk, read_op(&file, offset, 600_000)).unwrap() else {
                panic!("not a read");
            };
            let receiver = std::thread::spawn(move || {
                let mut all = Vec::new();
                theirs.read_to_end(&mut all).map(|_| all)
            });
            let mut sent = 0;
            while sent < ready.len() {
                match send(&ours, &ready, sent) {
                    Ok(count) => sent += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        std::thread::yield_now();
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            drop(ours);
            let received = receiver.join().unwrap().unwrap();
            assert!(received.len() == 600_000 && is_pattern(&received, offset));
        }
    }

    pub fn a_full_socket_takes_part(rig: &Rig) {
        let disk = rig.disk();
        rig.write("file", 4 << 20);
        let file = open(&disk, &rig.root(), "file");
        let (ours, theirs) = pair();
        let Done::Read(ready) = ask(&disk, read_op(&file, 0, 4 << 20)).unwrap() else {
            panic!("not a read");
        };
        let mut sent = 0;
        let full = loop {
            match send(&ours, &ready, sent) {
                Ok(count) => sent += count,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        assert!(sent > 0 && sent < 4 << 20);
        drop(theirs);
    }
}
