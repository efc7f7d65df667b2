/**
 * Descriptions of sessions as `stanza` (npm) has them: each line of the input is {jingle, by} or {sdp, by}, each of the
 * output the SDP, or the XML of a session-initiate or session-accept.
 */

import { createInterface } from "node:readline";
import { createRequire } from "node:module";

const require = createRequire(`${process.argv[2]}/`);
const { JXT } = require("stanza");
const { default: protocol } = require("stanza/protocol");
const { importFromSDP, exportToSDP } = require("stanza/jingle/sdp/Intermediate");
const {
  convertIntermediateToRequest,
  convertRequestToIntermediate,
} = require("stanza/jingle/sdp/Protocol");
const ICE = "urn:xmpp:jingle:transports:ice-udp:1";
const ACTION = { initiator: "session-initiate", responder: "session-accept" };

const registry = new JXT.Registry();
registry.define(protocol);

for await (const line of createInterface({ input: process.stdin })) {
  const { sdp, jingle, by } = JSON.parse(line);
  console.log(JSON.stringify(sdp ? toXML(sdp, by) : toSDP(jingle, by)));
}

function toXML(sdp, by) {
  const said = convertIntermediateToRequest(importFromSDP(sdp), by, ICE);
  const iq = { type: "set", jingle: { action: ACTION[by], sid: "s1", ...said } };
  return registry.export("iq", iq).toString();
}

/** What the other side makes of it. */
function toSDP(xml, by) {
  const { jingle } = registry.import(JXT.parse(xml));
  const role = by === "initiator" ? "responder" : "initiator";
  return exportToSDP(convertRequestToIntermediate(jingle, role));
}
