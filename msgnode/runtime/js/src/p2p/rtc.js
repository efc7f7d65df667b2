/** One WebRTC connection with one data channel, by the platform's RTCPeerConnection. */

import { limited } from "../clock.js";

const LABEL = "P2PChannel";
export const PROTOCOL = "msgnode.1";
const MAX_BUFFERED = 1024 * 1024; // bytes that wait in the channel
const LOW_BUFFERED = 256 * 1024;
const MOST_BUFFERED = 2 * MAX_BUFFERED; // what has no room stays out of it, but for acks and pongs
export const MAX_SDP = 16 * 1024;
export const MAX_CANDIDATES = 64;
const CLOSE_TIME = 1_000; // ms for what was handed to the channel

/** What the other side offers or answers cannot be used. */
export class BadDescription extends Error {}

/** A peer connection; `onOpen`, `onFrame`, `onLow`, `onClose` and `onEnd` are set by who uses it. */
export class RtcConnection {
  onOpen = () => {};
  onFrame = () => {};
  onLow = () => {};
  onClose = () => {};
  onEnd = () => {}; // told when it is closed, whoever did it
  #connection;
  #channel = null;
  #gatherTime;
  #clock;
  #closed = null;
  #isOpen = false;

  /** @param options {iceServers, relayOnly, gatherTime: ms, clock, RTCPeerConnection: the class} */
  constructor({ iceServers, relayOnly, gatherTime, clock, RTCPeerConnection }) {
    this.#gatherTime = gatherTime;
    this.#clock = clock;
    this.#connection = new RTCPeerConnection({
      iceServers: [...iceServers],
      iceTransportPolicy: relayOnly ? "relay" : "all",
    });
    this.#connection.ondatachannel = ({ channel }) => {
      if (this.#channel || channel.label !== LABEL || this.#closed) return;
      this.#watch(channel);
      if (channel.readyState === "open") this.#opened();
    };
    this.#connection.onconnectionstatechange = () => {
      if (["failed", "closed"].includes(this.#connection.connectionState)) this.onClose();
    };
  }

  /** The description of what we offer, with all candidates that are found in time. */
  async offer() {
    this.#watch(this.#connection.createDataChannel(LABEL, { protocol: PROTOCOL }));
    return this.#described();
  }

  /** Take an offer; the description of our answer. Throws BadDescription. */
  async answer(offered) {
    await this.#apply(offered, "offer");
    return this.#described();
  }

  /** Take the answer to our offer. Throws BadDescription. */
  async accept(answered) {
    await this.#apply(answered, "answer");
  }

  /** Take a candidate of the other side; one that is of no use is passed over. */
  addCandidate({ candidate, sdpMid, sdpMLineIndex }) {
    const line = sdpMid === null && sdpMLineIndex === null ? 0 : sdpMLineIndex; // one of both is asked for
    Promise.resolve()
      .then(() => this.#connection.addIceCandidate({ candidate, sdpMid, sdpMLineIndex: line }))
      .catch(() => {});
  }

  async #apply(described, kind) {
    const sdp = described?.sdp;
    if (typeof sdp !== "string" || sdp.length > MAX_SDP || described.type !== kind)
      throw new BadDescription(`There is no usable ${kind}.`);
    if (sdp.split("a=candidate:").length - 1 > MAX_CANDIDATES) {
      throw new BadDescription(`The ${kind} names more than ${MAX_CANDIDATES} candidates.`);
    }
    try {
      await this.#connection.setRemoteDescription({ type: kind, sdp });
    } catch (error) {
      throw new BadDescription(`The ${kind} cannot be used: ${error.message}`);
    }
  }

  async #described() {
    const connection = this.#connection;
    const gathered = new Promise((resolve) => {
      const isComplete = () => connection.iceGatheringState === "complete" && resolve();
      connection.onicegatheringstatechange = isComplete;
      connection.onicecandidate = ({ candidate }) => candidate === null && resolve();
      isComplete();
    });
    try {
      await connection.setLocalDescription();
    } catch (error) {
      throw new BadDescription(`This side cannot be described: ${error.message}`);
    }
    // What is found later is of no use to the other side, but what was found is.
    await limited(gathered, this.#gatherTime, () => new Error("late"), this.#clock).catch(() => {});
    const { sdp, type } = connection.localDescription;
    return { sdp, type };
  }

  // --- the channel --------------------------------------------------------------------------------

  /** Hand a frame to the channel; one that is not open takes it without a word. */
  send(frame) {
    if (this.#channel?.readyState !== "open") return;
    if (this.#channel.bufferedAmount > MOST_BUFFERED) {
      this.onClose(); // who asks and asks and does not read the answers
      return;
    }
    try {
      this.#channel.send(frame);
    } catch {
      this.onClose(); // a frame is missing now: the channel is of no use
    }
  }

  /** Whether another frame may wait in the channel. */
  hasRoom() {
    return !this.#channel || this.#channel.bufferedAmount < MAX_BUFFERED;
  }

  /** Close it, after what was handed to it; nothing more is told of it. Resolves when it is closed. */
  close() {
    this.onOpen = this.onFrame = this.onLow = this.onClose = () => {};
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close() {
    const channel = this.#channel;
    if (channel && channel.readyState === "open") {
      const isClosed = new Promise((resolve) => {
        channel.onclose = resolve;
      });
      channel.close(); // what it has is sent before
      await limited(isClosed, CLOSE_TIME, () => new Error("late"), this.#clock).catch(() => {});
    }
    this.#connection.close();
    this.onEnd();
  }

  /** A channel that came open says so once more. */
  #opened() {
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.onOpen();
  }

  #watch(channel) {
    this.#channel = channel;
    channel.binaryType = "arraybuffer";
    channel.bufferedAmountLowThreshold = LOW_BUFFERED;
    channel.onopen = () => this.#opened();
    // Packages for Node.js hand over bytes as a view, and tell of the event to its listeners alone.
    channel.onmessage = ({ data }) =>
      this.onFrame(ArrayBuffer.isView(data) ? new Uint8Array(data).buffer : data);
    channel.addEventListener?.("bufferedamountlow", () => this.onLow());
    channel.onclose = () => this.onClose();
  }
}
