/**
 * The media of a call: one RTCPeerConnection with audio. Its descriptions have all candidates in them, so that one
 * offer and one answer are enough.
 *
 * onEnded()          once, when it is over      onBytes({sent, received})   once a second
 * onSilent()         nothing has come for two seconds: the other side, or the way to it, is gone; the call ends after 15 s
 */

const GATHERING = 4_000; // ms for candidates
const SILENT = 2; // counts, one a second: even who says nothing sends packets
const GONE = 15;

export class Media {
  onEnded = () => {};
  onBytes = () => {};
  onSilent = () => {};
  #connection = new RTCPeerConnection();
  #stream = null;
  #timer = 0;
  #isOver = false;
  #received = 0;
  #silence = 0; // counts since something came

  constructor(audio) {
    this.#connection.addEventListener("track", ({ streams }) => (audio.srcObject = streams[0]));
    this.#connection.addEventListener("connectionstatechange", () => {
      if (["failed", "closed"].includes(this.#connection.connectionState)) this.close();
    });
    this.#timer = setInterval(() => this.#count(), 1_000);
  }

  /** The description that begins a call. @throws DOMException without a microphone */
  async offer() {
    await this.#listen();
    await this.#connection.setLocalDescription(await this.#connection.createOffer());
    return this.#described();
  }

  /** The answer to somebody's. */
  async answer(offer) {
    await this.#connection.setRemoteDescription(checked(offer, "offer"));
    await this.#listen();
    await this.#connection.setLocalDescription(await this.#connection.createAnswer());
    return this.#described();
  }

  /** What came back. */
  async take(answer) {
    await this.#connection.setRemoteDescription(checked(answer, "answer"));
  }

  /** Candidates of the other side that are not in its description. */
  async add(candidates) {
    for (const each of Array.isArray(candidates) ? candidates : [])
      if (typeof each?.candidate === "string") await this.#connection.addIceCandidate(each);
  }

  close() {
    if (this.#isOver) return;
    this.#isOver = true;
    clearInterval(this.#timer);
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    this.#connection.close();
    this.onEnded();
  }

  async #listen() {
    if (!navigator.mediaDevices)
      throw new Error(
        "Browsers allow a page to use the microphone only over HTTPS or on this machine.",
      );
    const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    this.#stream = stream;
    if (this.#isOver) for (const track of stream.getTracks()) track.stop();
    else for (const track of stream.getTracks()) this.#connection.addTrack(track, stream);
  }

  async #described() {
    const connection = this.#connection;
    await new Promise((resolve) => {
      const look = () => connection.iceGatheringState === "complete" && resolve();
      connection.addEventListener("icegatheringstatechange", look);
      setTimeout(resolve, GATHERING);
      look();
    });
    const { type, sdp } = connection.localDescription;
    return { type, sdp };
  }

  async #count() {
    let sent = 0;
    let received = 0;
    for (const each of (await this.#connection.getStats()).values()) {
      if (each.type === "outbound-rtp") sent += each.bytesSent;
      if (each.type === "inbound-rtp") received += each.bytesReceived;
    }
    if (this.#isOver) return;
    this.#silence = received > this.#received ? 0 : this.#silence + 1;
    this.#received = received;
    if (received && this.#silence >= GONE) this.close();
    else if (received && this.#silence >= SILENT) this.onSilent();
    else this.onBytes({ sent, received });
  }
}

function checked(description, type) {
  if (description?.type !== type || typeof description.sdp !== "string")
    throw new Error(`The other side sent no ${type}.`);
  return { type, sdp: description.sdp };
}
