"""Frames: one datagram each way, for links where every byte counts (SPEC.md, "Frames").

    sent = encode_question(Question(id=7, text="Who leads Anna?"), shared)  # on the device
    question = decode_question(sent, shared)  # on the service's side
    back = encode_reply(AnswerFrame(question.id, part=0, last=True, payload=payload))
    reply = decode_reply(back)  # on the device: an AnswerFrame, a Refusal or a Challenge

A question frame carries the user's text, coded like a payload; an answer frame one payload of a chain; a
refusal the reason why there is none; a challenge asks for the question again, with a cookie. Responsible for
bytes. Not responsible for sockets, retries or keys.
"""
